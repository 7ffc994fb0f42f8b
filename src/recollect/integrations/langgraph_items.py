"""An item of a LangGraph store as a memory: its namespace, its words for search, its filter, its time to live."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from langgraph.store.base import Item, MatchCondition, SearchItem, get_text_at_path

from recollect.errors import InvalidFilter, InvalidInput
from recollect.model.memory import MemoryRecord
from recollect.model.text import normalise_invisible, repair_text
from recollect.model.times import now

# How the names begin by which a memory's metadata says in which namespaces it is: one digest for each depth.
METADATA_PREFIX = "langgraph"
# Recall gives keyed facts of 0.5 and more whatever the question: items of a store are to be asked for. What is worth
# less than 0.4 fades, and upkeep forgets it: a store is to keep them.
IMPORTANCE = 0.4
# A time to live is counted anew when this much of it has passed, not with every read: each is a line of history.
_RENEW_FRACTION = 0.1


@dataclass(frozen=True, slots=True)
class ItemKey:
    """Where an item is: whose it is, the namespace as the caller says it, and its key."""

    user: str
    namespace: tuple[str, ...]
    key: str

    @property
    def digest(self) -> str:
        """The key of the memory: it stands for the namespace and the item's key, whatever these are made of."""
        return _digest([*self.namespace, self.key], "item")


def namespace_filter(prefix: Sequence[str]) -> dict[str, Any]:
    """The filter for what lies in a namespace or below it."""
    return {f"metadata.{METADATA_PREFIX}_{len(prefix)}": _digest(prefix, "namespace")}


def to_fields(
    item_key: ItemKey, value: Mapping[str, Any], *, index: list[str] | Literal[False] | None, ttl: float | None
) -> dict[str, Any]:
    """The fields of the memory that keeps an item; its content are the words by which it is found."""
    words = "" if index is False else search_text(value, index)
    depths = {
        f"{METADATA_PREFIX}_{depth}": _digest(item_key.namespace[:depth], "namespace")
        for depth in range(len(item_key.namespace) + 1)
    }
    return {
        "content": words or repair_text(f"item {item_key.key} in {' / '.join(item_key.namespace)}"),
        "metadata": {f"{METADATA_PREFIX}_words": bool(words), **depths},
        "detail": {
            "namespace": list(item_key.namespace),
            "key": item_key.key,
            "value": dict(value),
            "ttl_minutes": ttl,
        },
        "expires_at": None if ttl is None else now() + timedelta(minutes=ttl),
        # What tells two values apart whose words are the same.
        "value": _digest_of(["value", dict(value)]),
    }


def search_text(value: Mapping[str, Any], paths: Sequence[str] | None) -> str:
    """The words an item is found by: those at the paths, or all of it, "name: words" a line.

    An item that says one thing only is told without its name.
    """
    if paths is not None:
        lines = [text for path in paths for text in get_text_at_path(dict(value), path)]
    else:
        leaves = list(_leaves(value, ""))
        lines = [text if len(leaves) == 1 else f"{name}: {text}" for name, text in leaves]
    return normalise_invisible(repair_text("\n".join(lines))).strip()


def _leaves(value: Any, name: str) -> Iterator[tuple[str, str]]:
    match value:
        case Mapping():
            for each, child in value.items():
                yield from _leaves(child, f"{name} {each}".strip())
        case list() | tuple():
            for child in value:
                yield from _leaves(child, name)
        case None:
            return
        case _:
            yield name, str(value)


def to_item(record: MemoryRecord) -> Item:
    """The item that a memory keeps."""
    return Item(**_item_fields(record))


def to_search_item(record: MemoryRecord, score: float | None) -> SearchItem:
    """The item that a memory keeps, as a search gives it."""
    return SearchItem(**_item_fields(record), score=score)


def _item_fields(record: MemoryRecord) -> dict[str, Any]:
    return {
        "namespace": tuple(record.detail["namespace"]),
        "key": record.detail["key"],
        "value": dict(record.detail["value"]),
        "created_at": record.created_at,
        "updated_at": record.updated_at,
    }


def is_expired(record: MemoryRecord, at: datetime) -> bool:
    """Whether its time has run out, though upkeep may not have forgotten it yet."""
    return record.expires_at is not None and record.expires_at <= at


def renewed_until(record: MemoryRecord, at: datetime) -> datetime | None:
    """Until when an item lives that is read now; None if that need not be changed."""
    minutes = record.detail.get("ttl_minutes")
    if minutes is None or record.expires_at is None:
        return None
    until = at + timedelta(minutes=minutes)
    return until if until - record.expires_at > timedelta(minutes=minutes * _RENEW_FRACTION) else None


def matches(value: Any, expected: Any) -> bool:
    """Whether a value is as a filter wants it: equal, or compared by $eq, $ne, $gt, $gte, $lt or $lte."""
    if isinstance(expected, Mapping):
        if any(isinstance(name, str) and name.startswith("$") for name in expected):
            return all(_compare(value, op, other) for op, other in expected.items())
        return isinstance(value, Mapping) and all(matches(value.get(name), other) for name, other in expected.items())
    if isinstance(expected, list | tuple):
        same_length = isinstance(value, list | tuple) and len(value) == len(expected)
        return same_length and all(matches(each, other) for each, other in zip(value, expected, strict=True))
    return bool(value == expected)


def _compare(value: Any, op: str, other: Any) -> bool:
    if op in ("$eq", "$ne"):
        return bool(value == other) is (op == "$eq")
    if op not in ("$gt", "$gte", "$lt", "$lte"):
        raise InvalidFilter(f"unknown operator {op!r}; the operators are $eq, $ne, $gt, $gte, $lt and $lte")
    if not (isinstance(value, str) and isinstance(other, str)):
        # Texts, such as times in ISO 8601, are compared as such; all else as numbers.
        try:
            value, other = float(value), float(other)
        except (TypeError, ValueError):
            return False
    if op in ("$gt", "$gte"):
        return bool(value > other or (op == "$gte" and value == other))
    return bool(value < other or (op == "$lte" and value == other))


def is_within(namespace: Sequence[str], condition: MatchCondition) -> bool:
    """Whether a namespace begins or ends with a path; `*` stands for any one label."""
    path = condition.path
    if len(path) > len(namespace):
        return False
    part = namespace[: len(path)] if condition.match_type == "prefix" else namespace[len(namespace) - len(path) :]
    return all(expected in ("*", label) for expected, label in zip(path, part, strict=True))


def _digest(labels: Sequence[str], kind: str) -> str:
    if not all(isinstance(label, str) for label in labels):
        raise InvalidInput(f"the labels of a namespace, and a key, are texts: {list(labels)!r}")
    return _digest_of([kind, *labels])


def _digest_of(plain: object) -> str:
    try:
        text = json.dumps(plain, sort_keys=True)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"the value of an item must be plain JSON: {error}") from None
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
