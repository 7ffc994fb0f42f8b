"""Memory for LangGraph: a durable `BaseStore` on the ledger, with history and semantic search."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from recollect.client import AsyncMemory
from recollect.errors import InvalidInput, MissingExtra, StaleVersion
from recollect.integrations.common import AnyMemory, call_memory, call_memory_blocking
from recollect.model.memory import MemoryRecord
from recollect.model.times import now

try:
    from langgraph.store.base import (
        BaseStore,
        GetOp,
        Item,
        ListNamespacesOp,
        Op,
        PutOp,
        Result,
        SearchItem,
        SearchOp,
        TTLConfig,
    )

    from recollect.integrations import langgraph_items as items
    from recollect.integrations.langgraph_items import METADATA_PREFIX, ItemKey
except ImportError as error:
    raise MissingExtra("memory for LangGraph", "langgraph") from error

BY = "langgraph"
_MAX_RESULTS = 1000


@dataclass(frozen=True, slots=True)
class _UserResolver:
    """Finds the user of a namespace: a fixed one, or the label at a position."""

    user_id: str | None
    user_at: int

    def user(self, labels: tuple[str, ...]) -> str:
        if self.user_id is not None:
            return self.user_id
        if len(labels) <= self.user_at or labels[self.user_at] == "*":
            raise InvalidInput(f"the namespace {labels!r} names no user: label {self.user_at} must be the user")
        return labels[self.user_at]


class RecollectStore(BaseStore):
    """Items of LangGraph as memories of their users.

    The user is the label `user_at` of every namespace, the first by default, or always `user_id`; a namespace without
    a user is refused, so that no search reaches another user's items. The items are in the project `project_id`:
    `recall(..., project_id="langgraph")` finds them together with learned memories. A put is recorded in history and
    can be undone; a delete forgets.

    Pass a `Memory` if the graph is invoked both ways; an `AsyncMemory` serves the async methods only.
    """

    supports_ttl = True
    __slots__ = ("_memory", "_project", "_users", "fields", "ttl_config")

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
        self._users = _UserResolver(user_id, user_at)
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

    def _item_key(self, namespace: tuple[str, ...], key: str) -> ItemKey:
        return ItemKey(self._users.user(namespace), tuple(namespace), key)

    async def _find_record(self, memory: AsyncMemory, item_key: ItemKey) -> MemoryRecord | None:
        page = await memory.get_all(
            user_id=item_key.user, project_id=self._project, filters={"key": item_key.digest}, limit=1
        )
        return next(iter(page), None)

    async def _get(self, memory: AsyncMemory, op: GetOp, at: datetime) -> Item | None:
        item_key = self._item_key(op.namespace, op.key)
        record = await self._find_record(memory, item_key)
        if record is None or items.is_expired(record, at):
            return None
        if op.refresh_ttl:
            await self._renew(memory, record, at)
        return items.to_item(record)

    async def _put(self, memory: AsyncMemory, op: PutOp) -> None:
        item_key = self._item_key(op.namespace, op.key)
        while True:
            try:
                return await self._write(memory, item_key, op)
            except StaleVersion:
                # Somebody changed it in between: try again.
                continue

    async def _write(self, memory: AsyncMemory, item_key: ItemKey, op: PutOp) -> None:
        record = await self._find_record(memory, item_key)
        if op.value is None:
            if record is not None:
                await memory.delete(record.id, user_id=item_key.user, sources=False, by=BY)
            return
        index = self.fields if op.index is None else op.index
        fields = items.to_fields(item_key, op.value, index=index, ttl=op.ttl)
        if record is not None:
            await memory.update(record.id, user_id=item_key.user, expected_version=record.version, by=BY, **fields)
        else:
            # A key has one value in the ledger: of two concurrent puts the later one wins.
            await memory.add(
                user_id=item_key.user,
                project_id=self._project,
                key=item_key.digest,
                importance=items.IMPORTANCE,
                source=BY,
                by=BY,
                **fields,
            )

    async def _search(self, memory: AsyncMemory, op: SearchOp, at: datetime) -> list[SearchItem]:
        matches: list[tuple[MemoryRecord, float | None]] = []
        async for record, score in self._candidates(memory, op):
            if len(matches) >= op.offset + op.limit:
                break
            if not items.is_expired(record, at) and items.matches(record.detail["value"], op.filter or {}):
                matches.append((record, score))
        page = matches[op.offset :]
        if op.refresh_ttl:
            for record, _ in page:
                await self._renew(memory, record, at)
        return [items.to_search_item(record, score) for record, score in page]

    async def _candidates(
        self, memory: AsyncMemory, op: SearchOp
    ) -> AsyncIterator[tuple[MemoryRecord, float | None]]:
        """Yield items of the namespace: the best matches, then those without text; without a query the newest."""
        user, prefix = self._users.user(op.namespace_prefix), items.namespace_filter(op.namespace_prefix)
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
        async for record in self._list_records(memory, self._users.user(prefix), items.namespace_filter(())):
            namespace = tuple(record.detail["namespace"])
            if not items.is_expired(record, at) and all(items.is_within(namespace, each) for each in conditions):
                namespaces.add(namespace[: op.max_depth])
        return sorted(namespaces)[op.offset : op.offset + op.limit]

    async def _renew(self, memory: AsyncMemory, record: MemoryRecord, at: datetime) -> None:
        until = items.renewed_until(record, at)
        if until is None:
            return
        with suppress(StaleVersion):
            # A concurrent change has set its time.
            await memory.update(
                record.id,
                user_id=record.scope.user,
                expires_at=until,
                expected_version=record.version,
                by=BY,
                why="read",
            )
