"""Milvus as a vector store: a Lite file, a server or a cluster, by the same setting.

A collection holds the vectors of one model, whose digest is in the name of the vector field. The first model has the
collection of the configured name; another one has its digest appended, so that both can be searched.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from recollect.errors import IndexInUse, MissingExtra
from recollect.index.vector_store import (
    StoredVector,
    ThreadCalls,
    VectorStoreOptions,
    model_digest,
    redact_address,
    require_hash,
)
from recollect.ledger.types import ScoredRows
from recollect.model.change import Vector
from recollect.models.embedding import EmbeddingModel

T = TypeVar("T")
_PARTITIONS = 64
# Ids per call, and row numbers per page when users are listed.
_BATCH_IDS, _WINDOW = 1_000, 20_000
# With bounded consistency searches lag by 5 seconds at most; this is twice as long.
_SETTLES_S = 10.0
_BOUNDED, _STRONG = "Bounded", "Strong"


class MilvusOptions(VectorStoreOptions):
    """The options of Milvus."""

    __slots__ = ()

    @property
    def is_lite(self) -> bool:
        """Return whether it is a local file; a server is an address or host:port."""
        host, colon, port = self.address.rpartition(":")
        return "://" not in self.address and not (colon and port.isdigit() and "/" not in host and host)

    @property
    def uri(self) -> str:
        """Return the address for the client."""
        if self.is_lite:
            return str(Path(self.address).expanduser())
        return self.address if "://" in self.address else f"http://{self.address}"


def _is_relevant_log(record: logging.LogRecord) -> bool:
    return "Method not implemented" not in record.getMessage()


class _LiteErrors(logging.Filter):
    """Takes the error that Milvus Lite logs with a traceback, but does not raise, when its file cannot be opened."""

    last: BaseException | None = None

    def filter(self, record: logging.LogRecord) -> bool:
        if record.exc_info is None:
            return True
        self.last = record.exc_info[1]
        return False


_lite_errors = _LiteErrors()


class MilvusVectorStore:
    """Rows with the hashes of their user, which is the partition key, and place. It is opened on first use.

    The blocking client is called from threads: the asynchronous one is no faster.
    """

    residue = "bytes of deleted rows stay in its files until it compacts them"

    def __init__(self, options: MilvusOptions, model: EmbeddingModel) -> None:
        try:
            import grpc
            from pymilvus.exceptions import MilvusException
        except ImportError:
            raise MissingExtra("index = milvus", "milvus") from None
        self._options = options
        self._model = model
        self._client: Any = None
        self._collection = ""
        # A Lite file stores no description of a collection, so the name of the field identifies the model.
        self._field = f"vector_{model_digest(model)}"
        self._opening = threading.Lock()
        self._calls = ThreadCalls(self.name, (MilvusException, grpc.RpcError, OSError, RuntimeError))

    @property
    def name(self) -> str:
        """Return the name with the address."""
        options = self._options
        return "Milvus Lite" if options.is_lite else f"Milvus at {redact_address(options.uri)}"

    @property
    def settles_s(self) -> float:
        """Return 0 for a file, which shows changes at once."""
        return 0.0 if self._options.is_lite else _SETTLES_S

    async def nearest(self, user: str, vector: Vector, *, places: Sequence[str], limit: int) -> ScoredRows:
        quoted_places = ", ".join(f'"{require_hash(place)}"' for place in places)
        condition = f'user == "{require_hash(user)}" and place in [{quoted_places}]'
        # Milvus requires `ef` to be at least the limit.
        params = {"metric_type": "COSINE", "params": {"ef": max(self._options.ef, limit)}}

        def search(client: Any) -> ScoredRows:
            [hits] = client.search(
                self._collection,
                data=[vector],
                anns_field=self._field,
                filter=condition,
                limit=limit,
                search_params=params,
                consistency_level=_BOUNDED,
                timeout=self._options.timeout_s,
            )
            rows = np.fromiter((hit["id"] for hit in hits), np.int64, len(hits))
            return ScoredRows(rows, np.fromiter((hit["distance"] for hit in hits), np.float32, len(hits)))

        return await self._run(search)

    async def put(self, rows: Sequence[StoredVector]) -> None:
        data = [
            {
                "id": each.row,
                "user": require_hash(each.user),
                "place": require_hash(each.place),
                self._field: np.asarray(each.vector, np.float32),
            }
            for each in rows
        ]

        def put(client: Any) -> None:
            # Not upsert: a server of 2.3 puts the row into the partition of another user, where searches miss it.
            self._delete(client, [each.row for each in rows])
            client.insert(self._collection, data, timeout=self._options.timeout_s)

        await self._run(put)

    async def drop(self, rows: Sequence[int]) -> None:
        await self._run(lambda client: self._delete(client, rows))

    async def drop_user(self, user: str) -> int:
        rows = await self.rows(user)
        await self.drop(rows)
        return len(rows)

    async def rows(self, user: str) -> Sequence[int]:
        condition = f'user == "{require_hash(user)}"'
        matches = await self._run(lambda client: self._query(client, condition, "id"))
        return sorted(each["id"] for each in matches)

    async def users(self) -> Sequence[str]:
        return await self._run(lambda client: sorted(set(self._users(client))))

    async def clear(self) -> None:
        def clear(client: Any) -> None:
            client.drop_collection(self._collection, timeout=self._options.timeout_s)
            self._create_collection(client, self._collection)

        await self._run(clear)

    async def close(self) -> None:
        self._calls.close()
        if self._client is not None:
            with suppress(Exception):
                self._client.close()
            self._client = None

    async def _run(self, work: Callable[[Any], T]) -> T:
        """Return the result of work with the client, in a thread."""
        return await self._calls.run(lambda: work(self._connect()))

    def _query(self, client: Any, condition: str, field: str, **limit: int) -> Any:
        options = {"consistency_level": _STRONG, "timeout": self._options.timeout_s, **limit}
        return client.query(self._collection, filter=condition, output_fields=[field], **options)

    def _users(self, client: Any) -> Iterator[str]:
        """Yield the user of each row, by ranges of rows, because the size of an answer is limited."""
        start = 0
        while True:
            page = self._query(client, f"id >= {start} and id < {start + _WINDOW}", "user")
            yield from (each["user"] for each in page)
            start += _WINDOW
            if not page and not self._query(client, f"id >= {start}", "id", limit=1):
                return

    def _delete(self, client: Any, rows: Sequence[int]) -> None:
        for start in range(0, len(rows), _BATCH_IDS):
            ids = [int(row) for row in rows[start : start + _BATCH_IDS]]
            client.delete(self._collection, ids=ids, timeout=self._options.timeout_s)

    def _connect(self) -> Any:
        with self._opening:
            if self._client is None:
                client = self._open_file() if self._options.is_lite else self._open_client()
                self._collection = self._open_collection(client)
                self._client = client
            return self._client

    def _open_client(self) -> Any:
        from pymilvus import MilvusClient

        options = self._options
        return MilvusClient(options.uri, token=options.token, timeout=options.timeout_s)

    def _open_file(self) -> Any:
        from pymilvus.exceptions import ConnectionConfigException

        Path(self._options.uri).parent.mkdir(parents=True, exist_ok=True)
        # The client calls a method that only servers have, which Lite logs as an error.
        logging.getLogger("grpc._server").addFilter(_is_relevant_log)
        logging.getLogger("milvus_lite.server_manager").addFilter(_lite_errors)
        try:
            return self._open_client()
        except ConnectionConfigException:
            if type(_lite_errors.last).__name__ == "DataDirLockedError":
                message = f"{self.name}: {self._options.uri} is open in another process, such as a server"
                raise IndexInUse(message) from None
            raise

    def _open_collection(self, client: Any) -> str:
        """Return the collection of the model; create it if there is none."""
        for name in self._options.collection_names(self._model):
            if not client.has_collection(name, timeout=self._options.timeout_s):
                self._create_collection(client, name)
                return name
            description = client.describe_collection(name, timeout=self._options.timeout_s)
            if any(each["name"] == self._field for each in description["fields"]):
                client.load_collection(name, timeout=self._options.timeout_s)
                return name
        raise RuntimeError(f"the collection {name} belongs to another application")

    def _create_collection(self, client: Any, name: str) -> None:
        from pymilvus import DataType

        schema = client.create_schema(
            auto_id=False,
            description=str(self._model),
            partition_key_field="user",
            num_partitions=_PARTITIONS,
        )
        schema.add_field("id", DataType.INT64, is_primary=True)
        schema.add_field("user", DataType.VARCHAR, max_length=32, is_partition_key=True)
        schema.add_field("place", DataType.VARCHAR, max_length=32)
        schema.add_field(self._field, DataType.FLOAT_VECTOR, dim=self._model.dimensions)
        parameters = {"M": self._options.m, "efConstruction": self._options.ef_construction}
        index = client.prepare_index_params()
        index.add_index(self._field, index_type="HNSW", metric_type="COSINE", params=parameters)
        client.create_collection(
            name, schema=schema, index_params=index, consistency_level=_BOUNDED, timeout=self._options.timeout_s
        )
