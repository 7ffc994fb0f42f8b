"""Store and search memories with one product, in that product's environment.

`python peer_store.py STORE FOLDER DATA` needs nothing but the product. Each line on standard input is a command with
its arguments as JSON; each line on standard output is its result. DATA has texts, and their vectors in the same order
by the embedder that Recollect bundles: the other products look vectors up, so that embedding costs them nothing.
"""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import sys
import uuid
from array import array
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from hashlib import md5
from importlib import import_module
from pathlib import Path
from time import perf_counter, process_time
from typing import Any, Protocol

DIMENSIONS = 256
LIMIT = 10
# As agent-cli's proxy names the memory of clients that name none.
USER = "default"
# So many are inserted at a time by products that limit it.
_BATCH = 1000

HAS_EXTENSIONS = hasattr(sqlite3.Connection, "enable_load_extension")

Vectors = dict[str, list[float]]


class Store(Protocol):
    """The memories of one user in one product."""

    def fill(self, texts: Sequence[str]) -> None:
        """Store texts in the fastest way that the product has."""

    def add(self, text: str) -> None:
        """Store one text as written."""

    def search(self, question: str) -> Sequence[object]:
        """Return ten hits."""


def write_vectors(folder: Path, texts: Sequence[str], vectors: bytes) -> None:
    """Write the DATA of a worker."""
    folder.mkdir(parents=True)
    (folder / "texts.json").write_text(json.dumps(texts))
    (folder / "vectors.f32").write_bytes(vectors)


def _read_vectors(folder: Path) -> Vectors:
    values = array("f", (folder / "vectors.f32").read_bytes())
    texts = json.loads((folder / "texts.json").read_text())
    return {text: list(values[at * DIMENSIONS : (at + 1) * DIMENSIONS]) for at, text in enumerate(texts)}


def _batches(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    return (texts[start : start + _BATCH] for start in range(0, len(texts), _BATCH))


class _Recollect:
    """As installed, with its own embedder and late interaction."""

    def __init__(self, folder: Path, vectors: Vectors) -> None:
        from recollect import Memory

        self._home = folder
        self._memory = Memory(home=folder)

    def fill(self, texts: Sequence[str]) -> None:
        from recollect import AsyncMemory

        async def import_and_encode() -> None:
            async with AsyncMemory(home=self._home) as memory:
                await memory.import_(({"memory": text} for text in texts), user_id=USER)
                # Otherwise this happens in the background while searches are measured.
                late = (await memory.service()).search_deps.late
                while late is not None and await late.flush(USER):
                    pass

        asyncio.run(import_and_encode())

    def add(self, text: str) -> None:
        self._memory.add(text, user_id=USER)

    def search(self, question: str) -> Sequence[object]:
        return list(self._memory.search(question, user_id=USER, limit=LIMIT, min_score=0.0))


class _Mem0:
    """With its default store, Qdrant in a folder; texts are added without an LLM."""

    def __init__(self, folder: Path, vectors: Vectors) -> None:
        os.environ |= {"MEM0_TELEMETRY": "False", "MEM0_DIR": str(folder), "OPENAI_API_KEY": "none"}
        store = {"path": str(folder / "qdrant"), "on_disk": True, "embedding_model_dims": DIMENSIONS}
        config = {
            "vector_store": {"provider": "qdrant", "config": store},
            "history_db_path": str(folder / "history.db"),
        }
        self._memory = import_module("mem0").Memory.from_config(config)
        self._memory.embedding_model = self
        self._vectors = vectors

    def embed(self, text: str, memory_action: str | None = None) -> list[float]:
        """Return the vector of a text; called by mem0."""
        return self._vectors[text]

    def fill(self, texts: Sequence[str]) -> None:
        # As `add` stores them, but in batches.
        at = datetime.now(UTC).isoformat()
        same = {"user_id": USER, "role": "user", "created_at": at, "updated_at": at}
        for batch in _batches(texts):
            self._memory.vector_store.insert(
                vectors=[self._vectors[text] for text in batch],
                ids=[str(uuid.uuid4()) for _ in batch],
                payloads=[
                    {**same, "data": text, "text_lemmatized": text.lower(), "hash": md5(text.encode()).hexdigest()}
                    for text in batch
                ],
            )

    def add(self, text: str) -> None:
        self._memory.add(text, user_id=USER, infer=False)

    def search(self, question: str) -> Sequence[object]:
        found = self._memory.search(question, filters={"user_id": USER}, top_k=LIMIT, threshold=0.0)
        return list(found["results"])


class _AgentCli:
    """Without its cross-encoder, which it would download; facts are stored as written, without an LLM."""

    def __init__(self, folder: Path, vectors: Vectors) -> None:
        numpy, functions = import_module("numpy"), import_module("chromadb.utils.embedding_functions")
        arrays = {text: numpy.array(vector, numpy.float32) for text, vector in vectors.items()}
        # Chroma insists on these names.
        functions.OpenAIEmbeddingFunction.__call__ = lambda self, input: [arrays[text] for text in input]
        reranker: Any = import_module("agent_cli.core.reranker")
        reranker.get_reranker_model = lambda *_: NoReranker()
        self._persist = import_module("agent_cli.memory._persistence").persist_entries
        self._fact = import_module("agent_cli.memory.entities").Fact
        self._client = import_module("agent_cli.memory.client").MemoryClient(
            folder, "http://127.0.0.1:9/v1", max_entries=0, enable_git_versioning=False
        )

    def fill(self, texts: Sequence[str]) -> None:
        at = datetime.now(UTC)
        facts = [
            self._fact(id=str(uuid.uuid4()), conversation_id=USER, content=text, source_id="", created_at=at)
            for text in texts
        ]
        self._persist(
            self._client.collection, memory_root=self._client.memory_path, conversation_id=USER, entries=facts
        )

    def add(self, text: str) -> None:
        self.fill([text])

    def search(self, question: str) -> Sequence[object]:
        return list(asyncio.run(self._client.search(question, conversation_id=USER, top_k=LIMIT)).entries)


class NoReranker:
    """Takes the place of a cross-encoder, at no cost."""

    def predict(self, pairs: Sequence[object]) -> list[float]:
        """Return the same relevance for all."""
        return [0.0] * len(pairs)


class _LangGraph:
    """The store over SQLite, with its vector index."""

    def __init__(self, folder: Path, vectors: Vectors) -> None:
        self._vectors = vectors
        self._space = ("memories", USER)
        # The two stores name the indexed fields differently.
        index = {"dims": DIMENSIONS, "embed": self._embed, "fields": ["text"], "text_fields": ["text"]}
        self._store = self._open(folder, index)

    def _open(self, folder: Path, index: dict[str, Any]) -> Any:
        # The same module, for interpreters that were built without extensions.
        sqlite = sqlite3 if HAS_EXTENSIONS else import_module("pysqlite3")
        connection = sqlite.connect(folder / "store.db", check_same_thread=False, isolation_level=None)
        connection.execute("PRAGMA journal_mode = WAL")
        return import_module("langgraph.store.sqlite").SqliteStore(connection, index=index)

    def _embed(self, texts: Sequence[str]) -> list[list[float]]:
        return [self._vectors[text] for text in texts]

    def fill(self, texts: Sequence[str]) -> None:
        put = import_module("langgraph.store.base").PutOp
        for batch in _batches(texts):
            self._store.batch([put(self._space, str(uuid.uuid4()), {"text": text}) for text in batch])

    def add(self, text: str) -> None:
        self._store.put(self._space, str(uuid.uuid4()), {"text": text})

    def search(self, question: str) -> Sequence[object]:
        return list(self._store.search(self._space, query=question, limit=LIMIT))


class _LangGraphInMemory(_LangGraph):
    """The store that keeps nothing; with numpy, as it recommends."""

    def _open(self, folder: Path, index: dict[str, Any]) -> Any:
        return import_module("langgraph.store.memory").InMemoryStore(index=index)


class _Chroma:
    """A collection of its own for the user, which is faster than a filter."""

    def __init__(self, folder: Path, vectors: Vectors) -> None:
        chroma, config = import_module("chromadb"), import_module("chromadb.config")
        client = chroma.PersistentClient(str(folder), config.Settings(anonymized_telemetry=False))
        self._vectors = vectors
        self._collection = client.get_or_create_collection(
            USER, embedding_function=None, configuration={"hnsw": {"space": "cosine"}}
        )

    def fill(self, texts: Sequence[str]) -> None:
        for batch in _batches(texts):
            self._add(batch)

    def add(self, text: str) -> None:
        self._add([text])

    def _add(self, texts: Sequence[str]) -> None:
        ids = [str(uuid.uuid4()) for _ in texts]
        self._collection.add(ids, embeddings=[self._vectors[text] for text in texts], documents=list(texts))

    def search(self, question: str) -> Sequence[object]:
        found = self._collection.query(query_embeddings=[self._vectors[question]], n_results=LIMIT)
        return list(found["documents"][0])


STORES: dict[str, Callable[[Path, Vectors], Store]] = {
    "recollect": _Recollect,
    "mem0": _Mem0,
    "agent-cli": _AgentCli,
    "langgraph": _LangGraph,
    "langgraph-in-memory": _LangGraphInMemory,
    "chroma": _Chroma,
}
# Nothing to open.
IN_MEMORY = ("langgraph-in-memory",)


def _time(call: Callable[[str], object], texts: Sequence[str]) -> dict[str, list[float]]:
    wall_s, cpu_s = [], []
    for text in texts:
        wall, cpu = perf_counter(), process_time()
        call(text)
        wall_s.append(perf_counter() - wall)
        cpu_s.append(process_time() - cpu)
    return {"wall_s": wall_s, "cpu_s": cpu_s}


def _search(store: Store, question: str) -> None:
    hits = len(store.search(question))
    if hits != LIMIT:
        raise RuntimeError(f"{hits} hits instead of {LIMIT} for {question!r}")


def main() -> None:
    """Run the commands until the end of standard input; a failed one ends the process with its traceback."""
    name, folder, data = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    # Libraries print too.
    results = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    folder.mkdir(parents=True, exist_ok=True)
    store = STORES[name](folder, _read_vectors(data))
    for line in sys.stdin:
        command, texts = json.loads(line)
        if command == "fill":
            started = perf_counter()
            store.fill(texts)
            result: object = perf_counter() - started
        elif command == "search":
            result = _time(lambda question: _search(store, question), texts)
        else:
            result = _time(store.add, texts)
        print(json.dumps(result), file=results, flush=True)


if __name__ == "__main__":
    main()
