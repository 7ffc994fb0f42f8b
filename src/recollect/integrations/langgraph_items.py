"""Items of a LangGraph store as memories: namespaces, text for search, filters, and time to live."""

from __future__ import annotations

import hashlib
import json
import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from langgraph.store.base import Item, MatchCondition, SearchItem, get_text_at_path

from recollect.errors import InvalidFilter, InvalidInput
from recollect.model.memory import MemoryRecord
from recollect.model.text import normalise_invisible, repair_text
from recollect.model.times import now

# The prefix of metadata fields with a digest of the namespace at each depth.
METADATA_PREFIX = "langgraph"
# Below 0.5, from which recall returns keyed facts for every query; not below 0.4, where pruning forgets memories.
IMPORTANCE = 0.4
# A read renews the time to live only after this share of it, since each renewal is an entry of history.
_RENEW_FRACTION = 0.1


@dataclass(frozen=True, slots=True)
class ItemKey:
    """The user, the namespace and the key of an item."""

    user: str
    namespace: tuple[str, ...]
    key: str

    @property
    def digest(self) -> str:
        """Return the key of the memory: a digest of the namespace and the item's key."""
        return _digest([*self.namespace, self.key], "item")


def namespace_filter(prefix: Sequence[str]) -> dict[str, Any]:
    """Return a filter for items in a namespace or below it."""
    return {f"metadata.{METADATA_PREFIX}_{len(prefix)}": _digest(prefix, "namespace")}


def to_fields(
    item_key: ItemKey, value: Mapping[str, Any], *, index: list[str] | Literal[False] | None, ttl: float | None
) -> dict[str, Any]:
    """Return the fields of an item's memory; the content is the text for search."""
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
        # Distinguishes values with the same text.
        "value": _digest_of(["value", dict(value)]),
    }


def search_text(value: Mapping[str, Any], paths: Sequence[str] | None) -> str:
    """Return the text for search: the values at the paths, or all as lines "name: value".

    A single value is written without its name.
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
    """Return the item of a memory."""
    return Item(**_item_fields(record))


def to_search_item(record: MemoryRecord, score: float | None) -> SearchItem:
    """Return the item of a memory as a search result."""
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
    """Return whether its time to live is over, though maintenance may not have forgotten it yet."""
    return record.expires_at is not None and record.expires_at <= at


def renewed_until(record: MemoryRecord, at: datetime) -> datetime | None:
    """Return the new expiry of an item that is read now; None if it need not change."""
    minutes = record.detail.get("ttl_minutes")
    if minutes is None or record.expires_at is None:
        return None
    until = at + timedelta(minutes=minutes)
    return until if until - record.expires_at > timedelta(minutes=minutes * _RENEW_FRACTION) else None


def matches(value: Any, expected: Any) -> bool:
    """Return whether a value matches a filter: equal, or compared by $eq, $ne, $gt, $gte, $lt or $lte."""
    if isinstance(expected, Mapping):
        if any(isinstance(name, str) and name.startswith("$") for name in expected):
            return all(_compare(value, op, other) for op, other in expected.items())
        return isinstance(value, Mapping) and all(matches(value.get(name), other) for name, other in expected.items())
    if isinstance(expected, list | tuple):
        same_length = isinstance(value, list | tuple) and len(value) == len(expected)
        return same_length and all(matches(each, other) for each, other in zip(value, expected, strict=True))
    return bool(value == expected)


_COMPARISONS = {"$gt": operator.gt, "$gte": operator.ge, "$lt": operator.lt, "$lte": operator.le}


def _compare(value: Any, op: str, other: Any) -> bool:
    if op in ("$eq", "$ne"):
        return bool(value == other) is (op == "$eq")
    if op not in _COMPARISONS:
        raise InvalidFilter(f"unknown operator {op!r}; the operators are $eq, $ne, $gt, $gte, $lt and $lte")
    if not (isinstance(value, str) and isinstance(other, str)):
        # Texts, such as ISO 8601 times, are compared as texts, everything else as numbers.
        try:
            value, other = float(value), float(other)
        except (TypeError, ValueError):
            return False
    return bool(_COMPARISONS[op](value, other))


def is_within(namespace: Sequence[str], condition: MatchCondition) -> bool:
    """Return whether a namespace starts or ends with a path; `*` matches any label."""
    path = condition.path
    if len(path) > len(namespace):
        return False
    part = namespace[: len(path)] if condition.match_type == "prefix" else namespace[len(namespace) - len(path) :]
    return all(expected in ("*", label) for expected, label in zip(path, part, strict=True))


def _digest(labels: Sequence[str], kind: str) -> str:
    if not all(isinstance(label, str) for label in labels):
        raise InvalidInput(f"the labels of a namespace and the key must be texts, got {list(labels)!r}")
    return _digest_of([kind, *labels])


def _digest_of(plain: object) -> str:
    try:
        text = json.dumps(plain, sort_keys=True)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"the value of an item must be plain JSON: {error}") from None
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
