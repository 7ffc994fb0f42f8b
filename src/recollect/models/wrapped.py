"""Find the answer in what a model put around it: an object, a string that spells it, a line for each part."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from recollect.models.loose_json import ParsedJson, parse_json_values

# A wrapper in a wrapper is seen; more than that is no answer.
MAX_WRAPPERS = 3
# What a server or a model complains of is no answer, whatever it holds.
_ERROR_KEYS = frozenset(["error", "errors"])


def parse_json_lines(text: str) -> ParsedJson | None:
    """The objects of a text that has one on each line, as a list; None if it is no such text."""
    objects: list[Any] = []
    is_incomplete = False
    for line in text.splitlines():
        part = line.strip().removesuffix(",")
        if not part.startswith("{"):
            continue
        try:
            objects.append(json.loads(part))
        except (ValueError, RecursionError):
            is_incomplete = True
    # Read as any other answer is, without what nobody can store.
    return ParsedJson(next(parse_json_values(json.dumps(objects))).value, is_incomplete) if len(objects) > 1 else None


def unwrap(value: object) -> Iterator[object]:
    """What an object holds that may be the answer it wraps: another one, a list of such, a string that spells one."""
    if not isinstance(value, Mapping):
        return
    for name, item in value.items():
        if str(name).casefold() in _ERROR_KEYS:
            continue
        if isinstance(item, str) and item.lstrip()[:1] in ("{", "["):
            item = next((read.value for read in parse_json_values(item) if not read.is_incomplete), None)
        if (isinstance(item, Mapping) and item) or _is_list_of_objects(item):
            yield item


def _is_list_of_objects(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(each, Mapping) for each in value)
