"""Loading YAML of which nothing can surprise: plain values only, no name twice, no aliases, texts as they stand."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from recollect.errors import InvalidInput
from recollect.evaluation.files import read_text

MAX_BYTES = 4 << 20


class _Loader(yaml.SafeLoader):
    """Plain values; what YAML 1.1 reads into words such as no, off and 2026-03-15 stays text."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        # A few aliases of aliases can stand for more than fits into memory.
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise yaml.MarkedYAMLError(problem="aliases (*name) are not allowed; write it out", problem_mark=mark)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for name, _ in node.value:
            if not isinstance(name, yaml.ScalarNode):
                raise yaml.MarkedYAMLError(problem="a name must be plain text", problem_mark=name.start_mark)
            if name.value in seen:
                raise yaml.MarkedYAMLError(
                    problem=f"the name {name.value!r} stands there twice", problem_mark=name.start_mark
                )
            seen.add(name.value)
        return super().construct_mapping(node, deep)


_TEXTS = {"tag:yaml.org,2002:timestamp", "tag:yaml.org,2002:bool", "tag:yaml.org,2002:merge"}
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag not in _TEXTS]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile("^(?:true|false)$"), list("tf"))


def load_yaml(path: Path, *, shape: str) -> Any:
    """The document in a file, or an InvalidInput that names the line."""
    text = read_text(path, shape=shape)
    if len(text) > MAX_BYTES:
        raise InvalidInput(f"{path} is larger than {MAX_BYTES >> 20} MB; split it into several recipes")
    try:
        return yaml.load(text, Loader=_Loader)  # noqa: S506 - it is a SafeLoader
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        problem = ", ".join(each for each in (error.context, error.problem) if each)
        raise InvalidInput(f"{path}{where}: {problem}") from None
    except (yaml.YAMLError, ValueError) as error:
        raise InvalidInput(f"{path} is not YAML: {error}") from None
    except RecursionError:
        raise InvalidInput(f"{path} is nested too deeply; it should be {shape}") from None
