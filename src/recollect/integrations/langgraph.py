"""Memory for LangGraph: a durable `BaseStore` on the ledger, with history and semantic search."""

from __future__ import annotations

import hashlib
import json
import operator
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, Literal

from recollect.client import AsyncMemory
from recollect.errors import InvalidFilter, InvalidInput, MissingExtra, StaleVersion
from recollect.frozen_dataclass import frozen_dataclass
from recollect.integrations.common import AnyMemory, call_memory, call_memory_blocking
from recollect.model.memory import MemoryRecord
from recollect.model.text import normalise_invisible, repair_text
from recollect.model.times import now

try:
    from langgraph.store.base import (
        BaseStore,
        GetOp,
        Item,
        ListNamespacesOp,
        MatchCondition,
        Op,
        PutOp,
        Result,
        SearchItem,
        SearchOp,
        TTLConfig,
        get_text_at_path,
    )
except ImportError as error:
    raise MissingExtra("memory for LangGraph", "langgraph") from error

BY = "langgraph"
_MAX_RESULTS = 1000
# The prefix of metadata fields with a digest of the namespace at each depth.
METADATA_PREFIX = "langgraph"
# Below 0.5, from which recall returns keyed facts for every query; not below 0.4, where pruning forgets memories.
IMPORTANCE = 0.4
# A read renews the time to live only after this share of it, since each renewal is an entry of history.
_RENEW_FRACTION = 0.1


class RecollectStore(BaseStore):
    """Items of LangGraph as memories of their users.

    The user is the label `user_at` of every namespace, the first by default, or always `user_id`; a namespace without
    a user is refused, so that no search reaches another user's items. The items are in the project `project_id`:
    `recall(..., project_id="langgraph")` finds them together with learned memories. A put is recorded in history and
    can be undone; a delete forgets.

    Pass a `Memory` if the graph is invoked both ways; an `AsyncMemory` serves the async methods only.
    """

    supports_ttl = True
    __slots__ = ("_memory", "_project", "_user_at", "_user_id", "fields", "ttl_config")

    def __init__(
        self,
        memory: AnyMemory,
        *,
        user_id: str | None = None,
        user_at: int = 0,
        project_id: str = "langgraph",
        fields: list[str] | None = None,
        ttl: TTLConfig | None = None,
    ) -> None:
        """Create a store; `fields` are the paths of an item that search uses, all by default."""
        self._memory = memory
        self._user_id, self._user_at = user_id, user_at
        self._project = project_id
        self.fields = fields
        self.ttl_config = ttl

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Run operations; reads see the state before the puts."""
        operations = list(ops)
        return call_memory_blocking(self._memory, lambda memory: self._do(memory, operations))

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Run operations; reads see the state before the puts."""
        operations = list(ops)
        return await call_memory(self._memory, lambda memory: self._do(memory, operations))

    async def _do(self, memory: AsyncMemory, ops: list[Op]) -> list[Result]:
        at = now()
        results: list[Result] = []
        puts: dict[tuple[tuple[str, ...], str], PutOp] = {}
        for op in ops:
            if isinstance(op, GetOp):
                results.append(await self._get(memory, op, at))
            elif isinstance(op, SearchOp):
                results.append(await self._search(memory, op, at))
            elif isinstance(op, ListNamespacesOp):
                results.append(await self._namespaces(memory, op, at))
            elif isinstance(op, PutOp):
                # Only the last put of a key is written.
                puts[op.namespace, op.key] = op
                results.append(None)
            else:
                raise InvalidInput(f"unknown operation {type(op).__name__}")
        for put in puts.values():
            await self._put(memory, put)
        return results

    def _user(self, labels: tuple[str, ...]) -> str:
        """Return the user of a namespace, or raise InvalidInput."""
        if self._user_id is not None:
            return self._user_id
        if len(labels) <= self._user_at or labels[self._user_at] == "*":
            raise InvalidInput(f"the namespace {labels!r} names no user: label {self._user_at} must be the user")
        return labels[self._user_at]

    def _item_key(self, namespace: tuple[str, ...], key: str) -> ItemKey:
        return ItemKey(self._user(namespace), tuple(namespace), key)

    async def _find_record(self, memory: AsyncMemory, item_key: ItemKey) -> MemoryRecord | None:
        page = await memory.get_all(
            user_id=item_key.user, project_id=self._project, filters={"key": item_key.digest}, limit=1
        )
        return next(iter(page), None)

    async def _get(self, memory: AsyncMemory, op: GetOp, at: datetime) -> Item | None:
        item_key = self._item_key(op.namespace, op.key)
        record = await self._find_record(memory, item_key)
        if record is None or is_expired(record, at):
            return None
        if op.refresh_ttl:
            await self._renew(memory, record, at)
        return Item(**_item_fields(record))

    async def _put(self, memory: AsyncMemory, op: PutOp) -> None:
        item_key = self._item_key(op.namespace, op.key)
        while True:
            try:
                return await self._write(memory, item_key, op)
            except StaleVersion:
                # It was changed concurrently: retry.
                continue

    async def _write(self, memory: AsyncMemory, item_key: ItemKey, op: PutOp) -> None:
        record = await self._find_record(memory, item_key)
        if op.value is None:
            if record is not None:
                await memory.acting_as(BY).delete(record.id, user_id=item_key.user, sources=False)
            return
        index = self.fields if op.index is None else op.index
        fields = to_fields(item_key, op.value, index=index, ttl=op.ttl)
        if record is not None:
            await memory.acting_as(BY).update(
                record.id, user_id=item_key.user, expected_version=record.version, **fields
            )
        else:
            # A key has one value in the ledger: of two concurrent puts the later one wins.
            await memory.acting_as(BY).add(
                user_id=item_key.user,
                project_id=self._project,
                key=item_key.digest,
                importance=IMPORTANCE,
                source=BY,
                **fields,
            )

    async def _search(self, memory: AsyncMemory, op: SearchOp, at: datetime) -> list[SearchItem]:
        selected: list[tuple[MemoryRecord, float | None]] = []
        async for record, score in self._candidates(memory, op):
            if len(selected) >= op.offset + op.limit:
                break
            if not is_expired(record, at) and matches(record.detail["value"], op.filter or {}):
                selected.append((record, score))
        page = selected[op.offset :]
        if op.refresh_ttl:
            for record, _ in page:
                await self._renew(memory, record, at)
        return [SearchItem(**_item_fields(record), score=score) for record, score in page]

    async def _candidates(
        self, memory: AsyncMemory, op: SearchOp
    ) -> AsyncIterator[tuple[MemoryRecord, float | None]]:
        """Yield items of the namespace: the best matches, then those without text; without a query the newest."""
        user, prefix = self._user(op.namespace_prefix), namespace_filter(op.namespace_prefix)
        if not op.query:
            async for record in self._list_records(memory, user, prefix):
                yield record, None
            return
        limit = _MAX_RESULTS if op.filter else min(op.offset + op.limit, _MAX_RESULTS)
        with_words = {**prefix, f"metadata.{METADATA_PREFIX}_words": True}
        hits = await memory.search(
            op.query, user_id=user, project_id=self._project, filters=with_words, min_score=0, limit=max(limit, 1)
        )
        for hit in hits:
            yield hit.record, hit.score
        if len(hits) < limit:
            async for record in self._list_records(
                memory, user, {**prefix, f"metadata.{METADATA_PREFIX}_words": False}
            ):
                yield record, None

    async def _list_records(
        self, memory: AsyncMemory, user: str, filters: dict[str, Any]
    ) -> AsyncIterator[MemoryRecord]:
        cursor = None
        while True:
            page = await memory.get_all(
                user_id=user, project_id=self._project, filters=filters, limit=_MAX_RESULTS, cursor=cursor
            )
            for record in page:
                yield record
            if page.cursor is None:
                return
            cursor = page.cursor

    async def _namespaces(self, memory: AsyncMemory, op: ListNamespacesOp, at: datetime) -> list[tuple[str, ...]]:
        conditions = op.match_conditions or ()
        prefix = next((each.path for each in conditions if each.match_type == "prefix"), ())
        namespaces: set[tuple[str, ...]] = set()
        async for record in self._list_records(memory, self._user(prefix), namespace_filter(())):
            namespace = tuple(record.detail["namespace"])
            if not is_expired(record, at) and all(is_within(namespace, each) for each in conditions):
                namespaces.add(namespace[: op.max_depth])
        return sorted(namespaces)[op.offset : op.offset + op.limit]

    async def _renew(self, memory: AsyncMemory, record: MemoryRecord, at: datetime) -> None:
        until = renewed_until(record, at)
        if until is None:
            return
        with suppress(StaleVersion):
            # A concurrent change has set its time.
            await memory.acting_as(BY, why="read").update(
                record.id, user_id=record.scope.user, expires_at=until, expected_version=record.version
            )


@frozen_dataclass
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
