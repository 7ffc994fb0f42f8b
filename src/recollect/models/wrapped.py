"""Find the answer in what a model put around it: an object, a string that spells it, a line for each part."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from recollect.models.loose_json import Read, json_values

# A wrapper in a wrapper is seen; more than that is no answer.
MAX_WRAPPERS = 3
# What a server or a model complains of is no answer, whatever it holds.
_COMPLAINTS = frozenset(["error", "errors"])


def as_lines(text: str) -> Read | None:
    """The objects of a text that has one on each line, as a list; None if it is no such text."""
    objects: list[Any] = []
    lost = False
    for line in text.splitlines():
        part = line.strip().removesuffix(",")
        if not part.startswith("{"):
            continue
        try:
            objects.append(json.loads(part))
        except (ValueError, RecursionError):
            lost = True
    # Read as any other answer is, without what nobody can store.
    return Read(next(json_values(json.dumps(objects))).value, lost) if len(objects) > 1 else None


def inside(value: object) -> Iterator[object]:
    """What an object holds that may be the answer it wraps: another one, a list of such, a string that spells one."""
    if not isinstance(value, Mapping):
        return
    for name, held in value.items():
        if str(name).casefold() in _COMPLAINTS:
            continue
        if isinstance(held, str) and held.lstrip()[:1] in ("{", "["):
            held = next((read.value for read in json_values(held) if not read.lost), None)
        if (isinstance(held, Mapping) and held) or _is_list_of_objects(held):
            yield held


def _is_list_of_objects(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(each, Mapping) for each in value)
