"""Front matter: a few lines of YAML between two lines of dashes, then plain text.

What a person can write here is read as data and nothing else: no tags, no anchors, nothing deep, no name twice.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import yaml

from recollect.errors import InvalidInput
from recollect.lazy_pattern import lazy_pattern

_FENCE = "---"
_FENCE_LINE = lazy_pattern(r"^---[ \t]*$", re.MULTILINE)
_MAX_CHARS = 1 << 19
_MAX_DEPTH = 16
_MAX_NODES = 20_000
_HEX = "[0-9a-f]"
_PLAIN = lazy_pattern(
    f"{_HEX}{{8}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{12}}|default|global|memory|user|assistant"
)
_TIME = lazy_pattern(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{6})?\+00:00")
# The same in C, where it was built with it.
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_Dumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


def split_front_matter(text: str) -> tuple[dict[str, Any], str]:
    """Return the fields of the front matter and the text after it; raise `InvalidInput` if it is malformed.

    A text without front matter says nothing of itself.
    """
    text = text.removeprefix("\ufeff")
    if "\r\n" in text[:1000]:
        text = text.replace("\r\n", "\n")
    start = _FENCE_LINE.match(text)
    if start is None:
        return {}, text.strip()
    end = _FENCE_LINE.search(text, start.end())
    if end is None:
        raise InvalidInput("the front matter has no end: put a line of three dashes after it")
    return _load(text[start.end() : end.start()]), text[end.end() :].strip()


def join_front_matter(fields: Mapping[str, Any], body: str) -> str:
    """Return the text of a file."""
    block = "".join(_dump_field(name, value) for name, value in fields.items())
    return f"{_FENCE}\n{block}{_FENCE}\n{body.strip()}\n"


def _dump_field(name: str, value: object) -> str:
    """Return one field as YAML; ids and times, which are in every file, are written without the library."""
    if isinstance(value, str) and _PLAIN.fullmatch(value):
        return f"{name}: {value}\n"
    if isinstance(value, str) and _TIME.fullmatch(value):
        return f"{name}: '{value}'\n"
    return str(yaml.dump({name: value}, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=1000))


def _load(block: str) -> dict[str, Any]:
    if len(block) > _MAX_CHARS:
        raise InvalidInput(f"the front matter is {len(block):,} characters long; the limit is {_MAX_CHARS:,}")
    try:
        _check_events(block)
        fields = yaml.load(block, Loader=_Loader)  # noqa: S506 - a safe loader, and what it is given was looked at
    except yaml.YAMLError as error:
        raise InvalidInput(f"the front matter is not YAML: {_describe_yaml_error(error)}") from None
    except (ValueError, RecursionError, OverflowError) as error:
        raise InvalidInput(f"the front matter cannot be read: {error}") from None
    if fields is None:
        return {}
    if not isinstance(fields, dict):
        raise InvalidInput(f"the front matter is a {type(fields).__name__}, not names with values")
    if bad_names := [name for name in fields if not isinstance(name, str)]:
        raise InvalidInput(f"the name {bad_names[0]!r} in the front matter is no text: put it in quotes")
    return fields


def _check_events(block: str) -> None:
    """Raise an InvalidInput for what is more than data; events are looked at one by one, however deep they go."""
    open_names: list[set[str] | None] = []
    # Whether the next scalar of each open mapping is a name.
    is_name: list[bool] = []
    for count, event in enumerate(yaml.parse(block, Loader=_Loader)):
        if count > _MAX_NODES:
            raise InvalidInput(f"the front matter has more than {_MAX_NODES:,} parts")
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise InvalidInput("the front matter has an anchor or an alias; write the value out")
        if isinstance(event, yaml.NodeEvent) and (tag := getattr(event, "tag", None)):
            raise InvalidInput(f"the front matter has a tag, {str(tag)[:60]!r}; tags are not read")
        if isinstance(event, yaml.CollectionEndEvent):
            open_names.pop()
            is_name.pop()
            continue
        if open_names and isinstance(event, yaml.NodeEvent):
            _check_name(event, open_names[-1], is_name)
        if isinstance(event, yaml.CollectionStartEvent):
            if len(open_names) >= _MAX_DEPTH:
                raise InvalidInput(f"the front matter is more than {_MAX_DEPTH} levels deep")
            open_names.append(set() if isinstance(event, yaml.MappingStartEvent) else None)
            is_name.append(True)


def _check_name(event: yaml.NodeEvent, names: set[str] | None, is_name: list[bool]) -> None:
    if names is None:
        return
    if is_name[-1]:
        if not isinstance(event, yaml.ScalarEvent):
            raise InvalidInput("a name in the front matter is no plain text")
        if event.value in names:
            raise InvalidInput(f"the front matter has {event.value[:60]!r} twice")
        if event.value == "<<":
            raise InvalidInput("the front matter merges names with <<; write them out")
        names.add(event.value)
    is_name[-1] = not is_name[-1]


def _describe_yaml_error(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or "it cannot be parsed"
    return f"{problem}, line {mark.line + 1}" if mark is not None else str(problem)
