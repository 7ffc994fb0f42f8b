"""Where Chroma keeps a collection: in a folder, by its own library, or on a server, by its HTTP interface.

Its library also talks to servers, but waits for ever for one that stands still.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import httpx
import numpy as np

from recollect.errors import IndexUnavailable, MissingExtra
from recollect.index.calls import Calls
from recollect.index.engine_options import bare_address

if TYPE_CHECKING:
    from numpy.typing import NDArray

Where = Mapping[str, Any]
_PATH = "/api/v2/tenants/default_tenant/databases/default_database/collections"
_MOST_COLLECTIONS = 1_000


@dataclass(frozen=True, slots=True)
class Found:
    """What Chroma gives: ids, how far they are from what was asked for, their marks; each only if asked for."""

    ids: Sequence[str]
    distances: Sequence[float] = ()
    marks: Sequence[Mapping[str, str]] = ()


class ChromaStore(Protocol):
    """One collection, once it is opened."""

    async def models(self) -> Mapping[str, str]:
        """All collections there are, and the models they are of."""
        ...

    async def open(self, name: str, model: str, *, hnsw: Mapping[str, Any]) -> None:
        """Use this collection, made if it is not there."""
        ...

    async def remove(self, name: str) -> None: ...

    async def query(self, vector: NDArray[np.float32], where: Where, *, limit: int) -> Found: ...

    async def upsert(
        self, ids: Sequence[str], vectors: NDArray[np.float32], marks: Sequence[Mapping[str, str]]
    ) -> None: ...

    async def get(self, where: Where | None = None, *, limit: int | None = None, offset: int = 0) -> Found:
        """All that fit, with their marks where they are paged through."""
        ...

    async def delete(self, ids: Sequence[str]) -> None: ...

    async def close(self) -> None: ...


class ChromaFolder:
    """A folder that only this process may use."""

    def __init__(self, folder: Path) -> None:
        try:
            from chromadb.errors import ChromaError
        except ImportError:
            raise MissingExtra("index = chroma in a folder", "chroma") from None
        self._folder = folder
        self._client: Any = None
        self._collection: Any = None
        self._calls = Calls("Chroma", (ChromaError, OSError, RuntimeError, ValueError))

    async def models(self) -> Mapping[str, str]:
        def listed() -> Mapping[str, str]:
            found = self._opened().list_collections(limit=_MOST_COLLECTIONS)
            return {each.name: str((each.metadata or {}).get("model", "")) for each in found}

        return await self._calls.run(listed)

    async def open(self, name: str, model: str, *, hnsw: Mapping[str, Any]) -> None:
        def opened() -> None:
            self._collection = self._opened().get_or_create_collection(
                name, embedding_function=None, configuration={"hnsw": dict(hnsw)}, metadata={"model": model}
            )

        await self._calls.run(opened)

    async def remove(self, name: str) -> None:
        await self._calls.run(lambda: self._opened().delete_collection(name))

    async def query(self, vector: NDArray[np.float32], where: Where, *, limit: int) -> Found:
        found = await self._calls.run(
            lambda: self._collection.query(
                query_embeddings=[vector], n_results=limit, where=where, include=["distances"]
            )
        )
        return Found(found["ids"][0], found["distances"][0])

    async def upsert(
        self, ids: Sequence[str], vectors: NDArray[np.float32], marks: Sequence[Mapping[str, str]]
    ) -> None:
        await self._calls.run(
            lambda: self._collection.upsert(ids=list(ids), embeddings=vectors, metadatas=list(marks))
        )

    async def get(self, where: Where | None = None, *, limit: int | None = None, offset: int = 0) -> Found:
        include = ["metadatas"] if limit else []
        found = await self._calls.run(
            lambda: self._collection.get(where=where, limit=limit, offset=offset, include=include)
        )
        return Found(found["ids"], marks=found["metadatas"] or ())

    async def delete(self, ids: Sequence[str]) -> None:
        await self._calls.run(lambda: self._collection.delete(ids=list(ids)))

    async def close(self) -> None:
        self._calls.close()
        if self._client is not None:
            with suppress(Exception):
                await asyncio.to_thread(self._client.close)
            self._client = self._collection = None

    def _opened(self) -> Any:
        if self._client is None:
            import chromadb
            from chromadb.config import Settings

            self._folder.mkdir(parents=True, exist_ok=True)
            self._client = chromadb.PersistentClient(str(self._folder), settings=Settings(anonymized_telemetry=False))
        return self._client


class ChromaOnServer:
    """A server, which several processes may use."""

    def __init__(self, address: str, *, token: str, timeout_s: float) -> None:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._name = bare_address(address)
        self._url = address.rstrip("/") + _PATH
        self._http = httpx.AsyncClient(headers=headers, timeout=timeout_s)
        self._id = ""

    async def models(self) -> Mapping[str, str]:
        found = await self._ask("GET", f"?limit={_MOST_COLLECTIONS}")
        return {each["name"]: str((each.get("metadata") or {}).get("model", "")) for each in found}

    async def open(self, name: str, model: str, *, hnsw: Mapping[str, Any]) -> None:
        asked = {"name": name, "get_or_create": True, "metadata": {"model": model}, "configuration": {"hnsw": hnsw}}
        self._id = str((await self._ask("POST", "", asked))["id"])

    async def remove(self, name: str) -> None:
        await self._ask("DELETE", f"/{name}")

    async def query(self, vector: NDArray[np.float32], where: Where, *, limit: int) -> Found:
        asked = {
            "query_embeddings": [vector.tolist()],
            "n_results": limit,
            "where": where,
            "include": ["distances"],
        }
        found = await self._ask("POST", f"/{self._id}/query", asked)
        return Found(found["ids"][0], found["distances"][0])

    async def upsert(
        self, ids: Sequence[str], vectors: NDArray[np.float32], marks: Sequence[Mapping[str, str]]
    ) -> None:
        asked = {"ids": list(ids), "embeddings": vectors.tolist(), "metadatas": list(marks)}
        await self._ask("POST", f"/{self._id}/upsert", asked)

    async def get(self, where: Where | None = None, *, limit: int | None = None, offset: int = 0) -> Found:
        asked = {"where": where, "limit": limit, "offset": offset, "include": ["metadatas"] if limit else []}
        found = await self._ask("POST", f"/{self._id}/get", asked)
        return Found(found["ids"], marks=found.get("metadatas") or ())

    async def delete(self, ids: Sequence[str]) -> None:
        await self._ask("POST", f"/{self._id}/delete", {"ids": list(ids)})

    async def close(self) -> None:
        await self._http.aclose()

    async def _ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        try:
            answer = await self._http.request(method, self._url + path, json=body)
            answer.raise_for_status()
            return answer.json()
        except (httpx.HTTPError, ValueError) as error:
            raise IndexUnavailable(f"Chroma at {self._name}: {type(error).__name__}") from error
