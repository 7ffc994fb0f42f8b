"""mem0: its vector store (qdrant or Chroma on disk with the history, or pgvector), or its API.

A qdrant folder has pickles. They are read by an unpickler that only constructs plain values, so that nothing runs.
"""

from __future__ import annotations

import io
import json
import pickle
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any, TypeAlias
from urllib.parse import parse_qsl

from recollect.errors import InvalidInput, UpstreamUnavailable
from recollect.transfer.importers.items import (
    SkippedItem,
    SourceItem,
    SourceRecord,
    SourceSession,
    optional_text,
    read_turn,
)
from recollect.transfer.importers.source import ImportSource, has_tables, iter_rows, open_sqlite

# Fields of a payload that are fields of a memory, or that are not imported.
_MEM0_FIELDS = {
    "data", "memory", "hash", "created_at", "updated_at", "user_id", "agent_id", "run_id", "actor_id", "role",
    "text_lemmatized", "attributed_to", "expiration_date", "id", "categories", "score", "app_id", "metadata",
}  # fmt: skip
_COLUMNS = {"id": "uuid", "vector": "vector", "payload": "jsonb"}
# Collections of entities, and of the schema version.
_AUXILIARY_SUFFIXES = ("_entities", "mem0migrations")
_Point: TypeAlias = tuple[str, Mapping[str, Any], str]


def recognise(source: ImportSource) -> str:
    """Recognise an address, or the files it writes."""
    if source.is_database:
        from recollect.transfer.importers.postgres import open_tables

        with open_tables(source) as tables:
            names = tables.tables_with(_COLUMNS, excluding=_AUXILIARY_SUFFIXES)
        return f"it has the {'tables' if len(names) > 1 else 'table'} {', '.join(names)}" if names else ""
    if source.is_address:
        return "it is an address"
    if any(_is_qdrant(name) for name in source.names):
        return "it has a qdrant folder"
    if any(_is_mem0_chroma(source, name) for name in source.files_ending("chroma.sqlite3")):
        return "it has a Chroma folder with its memories"
    history = [name for name in source.files_ending(".db") if _is_history(source, name)]
    return f"{history[0]} is its history" if history else ""


def read(source: ImportSource) -> Iterator[SourceItem]:
    """Yield the memories, their earlier versions, and the last messages."""
    if source.is_address:
        yield from _read_database(source) if source.is_database else _read_api(source)
        return
    history = [name for name in source.files_ending(".db") if _is_history(source, name)]
    lines: dict[str, list[dict[str, Any]]] = {}
    for name in history:
        with open_sqlite(source, name) as connection:
            for row in iter_rows(connection, "SELECT * FROM history ORDER BY memory_id, updated_at, created_at"):
                lines.setdefault(str(row["memory_id"]), []).append(row)
    ids: set[str] = set()
    for point in _iter_points(source):
        if isinstance(point, SkippedItem):
            yield point
            continue
        id, payload, where = point
        ids.add(id)
        yield _read_memory(id, payload, where)
        yield from _read_versions(id, payload, lines.get(id, []), where)
    yield from _read_history_only(
        {id: entries for id, entries in lines.items() if id not in ids}, has_store=bool(ids)
    )
    for name in history:
        yield from _read_messages(source, name)


def _read_memory(id: str, payload: Mapping[str, Any], where: str) -> SourceItem:
    """Return a memory from its payload in the store or in the API."""
    text = payload.get("data") or payload.get("memory")
    if not isinstance(text, str):
        return SkippedItem(where, "it has no text")
    metadata = {name: value for name, value in payload.items() if name not in _MEM0_FIELDS and value is not None}
    metadata |= payload.get("metadata") or {}
    metadata |= {name: payload[name] for name in ("agent_id", "actor_id", "role") if payload.get(name)}
    return SourceRecord(
        id=id,
        text=text,
        where=where,
        at=payload.get("created_at"),
        user=optional_text(payload.get("user_id")),
        session=optional_text(payload.get("run_id")),
        fields={
            "updated_at": payload.get("updated_at") or payload.get("created_at"),
            "expires_at": payload.get("expiration_date"),
            # Without a role, a model extracted it.
            "trust": "high" if payload.get("role") == "user" else "low",
            "tags": [each for each in payload.get("categories") or () if isinstance(each, str)],
            "metadata": metadata,
        },
    )


def _read_versions(
    id: str, payload: Mapping[str, Any], lines: list[dict[str, Any]], where: str
) -> Iterator[SourceItem]:
    """Yield the earlier texts of a memory."""
    for number, line in enumerate(lines):
        if line["event"] == "UPDATE" and line["old_memory"] and line["old_memory"] != payload.get("data"):
            yield SourceRecord(
                id=f"{id}#{number}",
                text=line["old_memory"],
                where=f"{where}, earlier version",
                at=lines[number - 1]["updated_at"] or line["created_at"] if number else line["created_at"],
                user=optional_text(payload.get("user_id")),
                session=optional_text(payload.get("run_id")),
                fields={"status": "superseded", "valid_to": line["updated_at"]},
            )


def _read_history_only(lines: Mapping[str, list[dict[str, Any]]], *, has_store: bool) -> Iterator[SourceItem]:
    """Yield the memories that only the history has: all of them if there is no store, else the deleted ones."""
    for id, entries in lines.items():
        last = entries[-1]
        if last["event"] == "DELETE" or last["is_deleted"]:
            yield SkippedItem(f"memory {id}", "deleted in the source")
        elif has_store:
            yield SkippedItem(f"memory {id}", "only the history has it, without its user")
        else:
            yield SourceRecord(
                id=id,
                text=last["new_memory"] or "",
                where=f"memory {id} of the history",
                at=entries[0]["created_at"],
                fields={"updated_at": last["updated_at"] or last["created_at"]},
            )


def _read_messages(source: ImportSource, name: str) -> Iterator[SourceItem]:
    with open_sqlite(source, name) as connection:
        if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'messages'").fetchone():
            return
        rows = list(iter_rows(connection, "SELECT * FROM messages ORDER BY session_scope, created_at, rowid"))
    for scope, group in groupby(rows, key=lambda row: row["session_scope"] or ""):
        scope_ids = dict(parse_qsl(scope))
        session = scope_ids.get("run_id") or f"mem0 {scope}"
        for row in group:
            yield read_turn(
                row["role"],
                row["content"] or "",
                where=f"message {row['id']}",
                id=row["id"],
                at=row["created_at"],
                user=scope_ids.get("user_id"),
                session=session,
                name=row["name"],
            )
        yield SourceSession(session=session, user=scope_ids.get("user_id"))


def _iter_points(source: ImportSource) -> Iterator[_Point | SkippedItem]:
    for name in filter(_is_qdrant, source.names):
        with open_sqlite(source, name) as connection:
            for number, row in enumerate(iter_rows(connection, "SELECT point FROM points ORDER BY rowid"), 1):
                yield _unpickle(row["point"], f"{name}, point {number}")
    for name in source.files_ending("chroma.sqlite3"):
        with open_sqlite(source, name) as connection:
            for id, group in groupby(iter_rows(connection, _CHROMA_ROWS), key=lambda row: str(row["id"])):
                yield id, {row["key"]: row["value"] for row in group}, f"memory {id}"


_CHROMA_ROWS = r"""
SELECT e.embedding_id AS id, m.key, COALESCE(m.string_value, m.int_value, m.float_value, m.bool_value) AS value
FROM embeddings e JOIN embedding_metadata m ON m.id = e.id JOIN segments s ON s.id = e.segment_id
JOIN collections c ON c.id = s.collection
WHERE c.name NOT LIKE '%\_entities' ESCAPE '\' AND c.name <> 'mem0migrations' ORDER BY e.id
"""


def _is_qdrant(name: str) -> bool:
    parts = name.split("/")
    is_storage = parts[-1] == "storage.sqlite" and "collection" in parts[:-1]
    return is_storage and not parts[-2].endswith(_AUXILIARY_SUFFIXES)


def _is_history(source: ImportSource, name: str) -> bool:
    if not has_tables(source, name, "history"):
        return False
    with open_sqlite(source, name) as connection:
        columns = {row[1] for row in connection.execute("PRAGMA table_info(history)")}
    return {"memory_id", "old_memory", "new_memory", "event"} <= columns


def _is_mem0_chroma(source: ImportSource, name: str) -> bool:
    if not has_tables(source, name, "collections", "embeddings", "embedding_metadata"):
        return False
    with open_sqlite(source, name) as connection:
        return bool(connection.execute("SELECT 1 FROM embedding_metadata WHERE key = 'text_lemmatized'").fetchone())


class _Plain:
    """Stands for any object of the pickle: stores its state, and does nothing."""

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if module.startswith("qdrant_client.") and name in ("PointStruct", "SparseVector"):
            return _Plain
        raise pickle.UnpicklingError(f"it contains {module}.{name}, which no point does")


def _unpickle(data: bytes, where: str) -> _Point | SkippedItem:
    try:
        point = _Unpickler(io.BytesIO(data)).load().state["__dict__"]
        return str(point["id"]), dict(point["payload"] or {}), f"memory {point['id']}"
    # A malicious pickle can raise anything.
    except Exception as error:
        return SkippedItem(where, f"it cannot be read safely: {error}")


def _read_database(source: ImportSource) -> Iterator[SourceItem]:
    """Yield the memories of a table for each collection in PostgreSQL, oldest first."""
    from recollect.transfer.importers.postgres import read_tables

    order = "payload->>'created_at', id"
    rows = read_tables(source, _COLUMNS, product="mem0", order=order, excluding=_AUXILIARY_SUFFIXES)
    for table, row in rows:
        try:
            payload = json.loads(row["payload"] or "null")
        except (ValueError, RecursionError):
            payload = None
        yield _read_memory(
            str(row["id"]), payload if isinstance(payload, dict) else {}, f"{table}, memory {row['id']}"
        )


API_PAGE_SIZE = 100
_MAX_API_MEMORIES = 1000
# A server that ignores the limit returns a multiple of this.
_SERVER_PAGE = 20
_API_TIMEOUT_S = 60.0


def _read_api(source: ImportSource) -> Iterator[SourceItem]:
    """Yield the memories of the users in `options["of"]`, or of all users that the API lists."""
    import httpx

    token = source.options.get("token")
    headers = {"Authorization": f"Token {token}", "X-API-Key": token} if token else {}
    try:
        with httpx.Client(base_url=source.location, headers=headers, timeout=_API_TIMEOUT_S) as client:
            is_platform = client.get("/v1/ping/").status_code == 200
            for user in source.options.get("of") or _api_users(client, is_platform=is_platform):
                for memory in _platform_memories(client, user) if is_platform else _server_memories(client, user):
                    if isinstance(memory, SkippedItem):
                        yield memory
                        continue
                    id = str(memory.get("id"))
                    yield _read_memory(id, {**memory, "user_id": memory.get("user_id") or user}, f"memory {id}")
    except httpx.HTTPStatusError as error:
        status = error.response.status_code
        raise InvalidInput(f"{source.location} answered {status}: check the address and the key") from None
    except (httpx.HTTPError, ValueError) as error:
        raise UpstreamUnavailable(f"{source.location} does not answer as mem0 does: {error}") from error


def _api_users(client: Any, *, is_platform: bool) -> list[str]:
    if not is_platform:
        raise InvalidInput("a mem0 server does not list its users: name them with --of")
    answer = client.get("/v1/entities/").raise_for_status()
    return [str(each["name"]) for each in answer.json()["results"] if each.get("type") == "user"]


def _platform_memories(client: Any, user: str) -> Iterator[dict[str, Any]]:
    page = 1
    while True:
        params = {"page": page, "page_size": API_PAGE_SIZE}
        answer = client.post("/v3/memories/", params=params, json={"filters": {"user_id": user}})
        data = answer.raise_for_status().json()
        yield from data["results"]
        if not data.get("next") or not data["results"]:
            return
        page += 1


def _server_memories(client: Any, user: str) -> Iterator[dict[str, Any] | SkippedItem]:
    # It has no pages, and a small default limit.
    answer = client.get("/memories", params={"user_id": user, "limit": _MAX_API_MEMORIES})
    data = answer.raise_for_status().json()
    memories = data["results"] if isinstance(data, dict) else data
    yield from memories
    if memories and len(memories) % _SERVER_PAGE == 0:
        yield SkippedItem(
            f"user {user}", f"it returned {len(memories):,} and may have more: import its folder instead"
        )
