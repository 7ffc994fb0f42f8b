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
from recollect.index.calls import require_hash
from recollect.index.chroma_stores import ChromaCollection, LocalChromaCollection, RemoteChromaCollection
from recollect.index.engine import StoredVector
from recollect.index.engine_options import VectorStoreOptions, redact_address
from recollect.ledger.protocol import ScoredRows
from recollect.models.embedding import EmbeddingModel

if TYPE_CHECKING:
    from recollect.model.change import Vector

# How many rows go in one call, and how many are looked through at a time.
_BATCH_ROWS, _PAGE = 1_000, 10_000


class ChromaOptions(VectorStoreOptions):
    """What Chroma is told."""

    __slots__ = ()

    @property
    def is_folder(self) -> bool:
        """Whether it is a folder of our own."""
        return "://" not in self.address


class ChromaVectorStore:
    """Rows with the marks of their user and place. It is opened when it is first used."""

    settles_s = 0.0
    residue = "bytes of what it dropped can stay in its files until they are written anew"

    def __init__(self, options: ChromaOptions, model: EmbeddingModel) -> None:
        self._options = options
        self._model = model
        self._client: ChromaCollection = (
            LocalChromaCollection(Path(options.address).expanduser())
            if options.is_folder
            else RemoteChromaCollection(options.address, token=options.token, timeout_s=options.timeout_s)
        )
        self._opening = asyncio.Lock()
        self._collection = ""

    @property
    def name(self) -> str:
        """Chroma, with where it is."""
        return "Chroma" if self._options.is_folder else f"Chroma at {redact_address(self._options.address)}"

    async def nearest(self, user: str, vector: Vector, *, places: Sequence[str], limit: int) -> ScoredRows:
        in_places = {"place": {"$in": [require_hash(place) for place in places]}}
        where = {"$and": [{"user": {"$eq": require_hash(user)}}, in_places]}
        result = await (await self._open_collection()).query(np.asarray(vector, np.float32), where, limit=limit)
        rows = np.fromiter(map(int, result.ids), np.int64, len(result.ids))
        return ScoredRows(rows, 1 - np.asarray(result.distances, np.float32))

    async def put(self, rows: Sequence[StoredVector]) -> None:
        hashes = [{"user": require_hash(each.user), "place": require_hash(each.place)} for each in rows]
        collection = await self._open_collection()
        for start in range(0, len(rows), _BATCH_ROWS):
            batch = rows[start : start + _BATCH_ROWS]
            vectors = np.stack([np.asarray(each.vector, np.float32) for each in batch])
            await collection.upsert([str(each.row) for each in batch], vectors, hashes[start : start + _BATCH_ROWS])

    async def drop(self, rows: Sequence[int]) -> None:
        collection = await self._open_collection()
        for start in range(0, len(rows), _BATCH_ROWS):
            await collection.delete([str(row) for row in rows[start : start + _BATCH_ROWS]])

    async def drop_user(self, user: str) -> int:
        rows = await self.rows(user)
        await self.drop(rows)
        return len(rows)

    async def rows(self, user: str) -> Sequence[int]:
        where = {"user": {"$eq": require_hash(user)}}
        return sorted(map(int, (await (await self._open_collection()).get(where)).ids))

    async def users(self) -> Sequence[str]:
        collection, users, offset = await self._open_collection(), set[str](), 0
        while (batch := await collection.get(limit=_PAGE, offset=offset)).ids:
            users |= {each["user"] for each in batch.marks}
            offset += _PAGE
        return sorted(users)

    async def clear(self) -> None:
        collection = await self._open_collection()
        await collection.remove(self._collection)
        await collection.open(self._collection, str(self._model), hnsw=self._hnsw)

    async def close(self) -> None:
        await self._client.close()

    @property
    def _hnsw(self) -> dict[str, str | int]:
        options = self._options
        parameters = {"max_neighbors": options.m, "ef_construction": options.ef_construction, "ef_search": options.ef}
        return {"space": "cosine", **parameters}

    async def _open_collection(self) -> ChromaCollection:
        async with self._opening:
            if not self._collection:
                name = self._collection_name(await self._client.models())
                await self._client.open(name, str(self._model), hnsw=self._hnsw)
                self._collection = name
        return self._client

    def _collection_name(self, models: Mapping[str, str]) -> str:
        """The name of our model's collection, whether it is there or not."""
        for name in self._options.collection_names(self._model):
            if models.get(name, str(self._model)) == str(self._model):
                return name
        raise IndexUnavailable(f"{self.name}: the collection {name} is not one of ours")
