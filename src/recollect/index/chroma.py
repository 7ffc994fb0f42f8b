"""Chroma as an engine: a folder of our own, or a server.

A collection holds the vectors of one model, whose name is in its metadata. The first model has the collection of the
name that is set; any other that comes while it is there has one with a digest after it, so that both can be live.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from recollect.errors import IndexUnavailable
from recollect.index.calls import checked_mark
from recollect.index.chroma_stores import ChromaFolder, ChromaOnServer, ChromaStore
from recollect.index.engine import Kept
from recollect.index.engine_options import EngineOptions, bare_address
from recollect.ledger.protocol import Scored
from recollect.models.embedding import EmbeddingModel

if TYPE_CHECKING:
    from recollect.model.change import Vector

# How many rows go in one call, and how many are looked through at a time.
_ROWS, _PAGE = 1_000, 10_000


class ChromaOptions(EngineOptions):
    """What Chroma is told."""

    __slots__ = ()

    @property
    def is_folder(self) -> bool:
        """Whether it is a folder of our own."""
        return "://" not in self.address


class ChromaEngine:
    """Rows with the marks of their user and place. It is opened when it is first used."""

    settles_s = 0.0
    leaves = "bytes of what it dropped can stay in its files until they are written anew"

    def __init__(self, options: ChromaOptions, model: EmbeddingModel) -> None:
        self._options = options
        self._model = model
        self._store: ChromaStore = (
            ChromaFolder(Path(options.address).expanduser())
            if options.is_folder
            else ChromaOnServer(options.address, token=options.token, timeout_s=options.timeout_s)
        )
        self._opening = asyncio.Lock()
        self._collection = ""

    @property
    def name(self) -> str:
        """Chroma, with where it is."""
        return "Chroma" if self._options.is_folder else f"Chroma at {bare_address(self._options.address)}"

    async def nearest(self, user: str, vector: Vector, *, places: Sequence[str], limit: int) -> Scored:
        inside = {"place": {"$in": [checked_mark(place) for place in places]}}
        where = {"$and": [{"user": {"$eq": checked_mark(user)}}, inside]}
        found = await (await self._opened()).query(np.asarray(vector, np.float32), where, limit=limit)
        rows = np.fromiter(map(int, found.ids), np.int64, len(found.ids))
        return Scored(rows, 1 - np.asarray(found.distances, np.float32))

    async def put(self, rows: Sequence[Kept]) -> None:
        marks = [{"user": checked_mark(each.user), "place": checked_mark(each.place)} for each in rows]
        store = await self._opened()
        for start in range(0, len(rows), _ROWS):
            some = rows[start : start + _ROWS]
            vectors = np.stack([np.asarray(each.vector, np.float32) for each in some])
            await store.upsert([str(each.row) for each in some], vectors, marks[start : start + _ROWS])

    async def drop(self, rows: Sequence[int]) -> None:
        store = await self._opened()
        for start in range(0, len(rows), _ROWS):
            await store.delete([str(row) for row in rows[start : start + _ROWS]])

    async def drop_user(self, user: str) -> int:
        rows = await self.rows(user)
        await self.drop(rows)
        return len(rows)

    async def rows(self, user: str) -> Sequence[int]:
        where = {"user": {"$eq": checked_mark(user)}}
        return sorted(map(int, (await (await self._opened()).get(where)).ids))

    async def users(self) -> Sequence[str]:
        store, users, offset = await self._opened(), set[str](), 0
        while (some := await store.get(limit=_PAGE, offset=offset)).ids:
            users |= {each["user"] for each in some.marks}
            offset += _PAGE
        return sorted(users)

    async def clear(self) -> None:
        store = await self._opened()
        await store.remove(self._collection)
        await store.open(self._collection, str(self._model), hnsw=self._hnsw)

    async def close(self) -> None:
        await self._store.close()

    @property
    def _hnsw(self) -> dict[str, str | int]:
        options = self._options
        built = {"max_neighbors": options.m, "ef_construction": options.ef_construction, "ef_search": options.ef}
        return {"space": "cosine", **built}

    async def _opened(self) -> ChromaStore:
        async with self._opening:
            if not self._collection:
                name = self._ours(await self._store.models())
                await self._store.open(name, str(self._model), hnsw=self._hnsw)
                self._collection = name
        return self._store

    def _ours(self, models: Mapping[str, str]) -> str:
        """The name of our model's collection, whether it is there or not."""
        for name in self._options.collections_of(self._model):
            if models.get(name, str(self._model)) == str(self._model):
                return name
        raise IndexUnavailable(f"{self.name}: the collection {name} is not one of ours")
