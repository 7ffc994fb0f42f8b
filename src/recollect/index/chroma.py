"""Chroma as a vector store: a folder, by its library, or a server, by its HTTP interface.

The library can also talk to servers, but has no timeout.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from recollect.errors import IndexUnavailable, MissingExtra
from recollect.index.vector_store import StoredVector, ThreadCalls, VectorStoreOptions, redact_address, require_hash
from recollect.ledger.types import ScoredRows
from recollect.model.change import Vector
from recollect.models.embedding import EmbeddingModel

_PATH = "/api/v2/tenants/default_tenant/databases/default_database/collections"
_MAX_COLLECTIONS = 1_000


class LocalChromaCollection:
    """A collection in a folder that only this process may use."""

    def __init__(self, folder: Path) -> None:
        try:
            from chromadb.errors import ChromaError
        except ImportError:
            raise MissingExtra("index = chroma in a folder", "chroma") from None
        self._folder = folder
        self._client: Any = None
        self._collection: Any = None
        self._calls = ThreadCalls("Chroma", (ChromaError, OSError, RuntimeError, ValueError))

    async def models(self) -> Mapping[str, str]:
        def list_models() -> Mapping[str, str]:
            result = self._connect().list_collections(limit=_MAX_COLLECTIONS)
            return {each.name: str((each.metadata or {}).get("model", "")) for each in result}

        return await self._calls.run(list_models)

    async def open(self, name: str, model: str, *, hnsw: Mapping[str, Any]) -> None:
        def open_collection() -> None:
            self._collection = self._connect().get_or_create_collection(
                name, embedding_function=None, configuration={"hnsw": dict(hnsw)}, metadata={"model": model}
            )

        await self._calls.run(open_collection)

    async def remove(self, name: str) -> None:
        await self._calls.run(lambda: self._connect().delete_collection(name))

    async def call(self, operation: str, **arguments: Any) -> Any:
        """Return the result of query, upsert, get or delete, which take the same arguments as on a server."""
        return await self._calls.run(lambda: getattr(self._collection, operation)(**arguments))

    async def close(self) -> None:
        self._calls.close()
        if self._client is not None:
            with suppress(Exception):
                await asyncio.to_thread(self._client.close)
            self._client = self._collection = None

    def _connect(self) -> Any:
        if self._client is None:
            import chromadb
            from chromadb.config import Settings

            self._folder.mkdir(parents=True, exist_ok=True)
            self._client = chromadb.PersistentClient(str(self._folder), settings=Settings(anonymized_telemetry=False))
        return self._client


class RemoteChromaCollection:
    """A collection on a server, which several processes may use."""

    def __init__(self, address: str, *, token: str, timeout_s: float) -> None:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._name = redact_address(address)
        self._url = address.rstrip("/") + _PATH
        self._http = httpx.AsyncClient(headers=headers, timeout=timeout_s)
        self._id = ""

    async def models(self) -> Mapping[str, str]:
        result = await self._request("GET", f"?limit={_MAX_COLLECTIONS}")
        return {each["name"]: str((each.get("metadata") or {}).get("model", "")) for each in result}

    async def open(self, name: str, model: str, *, hnsw: Mapping[str, Any]) -> None:
        body = {"name": name, "get_or_create": True, "metadata": {"model": model}, "configuration": {"hnsw": hnsw}}
        self._id = str((await self._request("POST", "", body))["id"])

    async def remove(self, name: str) -> None:
        await self._request("DELETE", f"/{name}")

    async def call(self, operation: str, **arguments: Any) -> Any:
        """Return the result of query, upsert, get or delete."""
        body = {name: each.tolist() if isinstance(each, np.ndarray) else each for name, each in arguments.items()}
        return await self._request("POST", f"/{self._id}/{operation}", body)

    async def close(self) -> None:
        await self._http.aclose()

    async def _request(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        try:
            response = await self._http.request(method, self._url + path, json=body)
            response.raise_for_status()
            return response.json()
        except (httpx.HTTPError, ValueError) as error:
            raise IndexUnavailable(f"Chroma at {self._name}: {type(error).__name__}") from error


# Rows per call, and per page when users are listed.
_BATCH_ROWS, _PAGE = 1_000, 10_000


class ChromaOptions(VectorStoreOptions):
    """The options of Chroma."""

    __slots__ = ()

    @property
    def is_folder(self) -> bool:
        """Return whether the address is a local folder."""
        return "://" not in self.address


class ChromaVectorStore:
    """Rows with the hashes of their user and place. It is opened on first use."""

    settles_s = 0.0
    residue = "bytes of deleted rows can stay in its files until they are rewritten"

    def __init__(self, options: ChromaOptions, model: EmbeddingModel) -> None:
        self._options = options
        self._model = model
        self._client: LocalChromaCollection | RemoteChromaCollection = (
            LocalChromaCollection(Path(options.address).expanduser())
            if options.is_folder
            else RemoteChromaCollection(options.address, token=options.token, timeout_s=options.timeout_s)
        )
        self._opening = asyncio.Lock()
        self._collection = ""

    @property
    def name(self) -> str:
        """Return the name with the address."""
        return "Chroma" if self._options.is_folder else f"Chroma at {redact_address(self._options.address)}"

    async def nearest(self, user: str, vector: Vector, *, places: Sequence[str], limit: int) -> ScoredRows:
        in_places = {"place": {"$in": [require_hash(place) for place in places]}}
        where = {"$and": [{"user": {"$eq": require_hash(user)}}, in_places]}
        query = np.asarray(vector, np.float32)[None]
        collection = await self._open_collection()
        result = await collection.call(
            "query", query_embeddings=query, n_results=limit, where=where, include=["distances"]
        )
        [ids], [distances] = result["ids"], result["distances"]
        return ScoredRows(np.fromiter(map(int, ids), np.int64, len(ids)), 1 - np.asarray(distances, np.float32))

    async def put(self, rows: Sequence[StoredVector]) -> None:
        hashes = [{"user": require_hash(each.user), "place": require_hash(each.place)} for each in rows]
        collection = await self._open_collection()
        for start in range(0, len(rows), _BATCH_ROWS):
            batch = rows[start : start + _BATCH_ROWS]
            vectors = np.stack([np.asarray(each.vector, np.float32) for each in batch])
            ids, metadatas = [str(each.row) for each in batch], hashes[start : start + _BATCH_ROWS]
            await collection.call("upsert", ids=ids, embeddings=vectors, metadatas=metadatas)

    async def drop(self, rows: Sequence[int]) -> None:
        collection = await self._open_collection()
        for start in range(0, len(rows), _BATCH_ROWS):
            await collection.call("delete", ids=[str(row) for row in rows[start : start + _BATCH_ROWS]])

    async def drop_user(self, user: str) -> int:
        rows = await self.rows(user)
        await self.drop(rows)
        return len(rows)

    async def rows(self, user: str) -> Sequence[int]:
        where = {"user": {"$eq": require_hash(user)}}
        return sorted(map(int, (await (await self._open_collection()).call("get", where=where, include=[]))["ids"]))

    async def users(self) -> Sequence[str]:
        collection, users, offset = await self._open_collection(), set[str](), 0
        while (batch := await collection.call("get", limit=_PAGE, offset=offset, include=["metadatas"]))["ids"]:
            users |= {each["user"] for each in batch["metadatas"]}
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

    async def _open_collection(self) -> LocalChromaCollection | RemoteChromaCollection:
        async with self._opening:
            if not self._collection:
                name = self._collection_name(await self._client.models())
                await self._client.open(name, str(self._model), hnsw=self._hnsw)
                self._collection = name
        return self._client

    def _collection_name(self, models: Mapping[str, str]) -> str:
        """Return the name of the model's collection, whether it exists or not."""
        for name in self._options.collection_names(self._model):
            if models.get(name, str(self._model)) == str(self._model):
                return name
        raise IndexUnavailable(f"{self.name}: the collection {name} belongs to another application")
