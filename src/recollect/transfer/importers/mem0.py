"""mem0: its vector store (qdrant or Chroma on disk with its history beside it, or pgvector), or its API.

A qdrant folder holds pickles. They are read by an unpickler that knows plain values only: nothing in them is run.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any, TypeAlias
from urllib.parse import parse_qsl

from recollect.transfer.importers import mem0_api, mem0_postgres
from recollect.transfer.importers.items import SkippedItem, SourceItem, SourceRecord, SourceSession
from recollect.transfer.importers.source import ImportSource, has_tables, iter_rows, open_sqlite

_MEM0_FIELDS = {
    "data", "memory", "hash", "created_at", "updated_at", "user_id", "agent_id", "run_id", "actor_id", "role",
    "text_lemmatized", "attributed_to", "expiration_date",
}  # fmt: skip
_Point: TypeAlias = tuple[str, Mapping[str, Any], str]


def recognise(source: ImportSource) -> str:
    """By its address, or by the files it writes."""
    if source.is_database:
        return mem0_postgres.recognise(source)
    if source.is_address:
        return "it is an address"
    names = source.names
    if any(_is_qdrant(name) for name in names):
        return "it has a qdrant folder"
    for name in source.files_ending("chroma.sqlite3"):
        if _is_mem0_chroma(source, name):
            return "it has a Chroma folder with its memories"
    history = [name for name in source.files_ending(".db") if _is_history(source, name)]
    return f"{history[0]} is its history" if history else ""


def read(source: ImportSource) -> Iterator[SourceItem]:
    """What it knows, what it knew before and replaced, and the last things said."""
    if source.is_address:
        yield from (mem0_postgres if source.is_database else mem0_api).read(source)
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
        yield from read_memory(id, payload, where)
        yield from _read_versions(id, payload, lines.get(id, []), where)
    yield from _read_history_only(lines, ids, is_only_source=not ids)
    for name in history:
        yield from _read_messages(source, name)


def read_memory(id: str, payload: Mapping[str, Any], where: str) -> Iterator[SourceItem]:
    """A memory as mem0 describes it, in its store or by its API."""
    text = payload.get("data") or payload.get("memory")
    if not isinstance(text, str):
        yield SkippedItem(where, "it has no words")
        return
    yield SourceRecord(
        id=id,
        text=text,
        where=where,
        at=payload.get("created_at"),
        user=_text(payload.get("user_id")),
        session=_text(payload.get("run_id")),
        fields={
            "updated_at": payload.get("updated_at") or payload.get("created_at"),
            "expires_at": payload.get("expiration_date"),
            # What has no role was made of the user's words by a model.
            "trust": "high" if payload.get("role") == "user" else "low",
            "tags": [each for each in payload.get("categories") or () if isinstance(each, str)],
            "metadata": _metadata(payload),
        },
    )


def _metadata(payload: Mapping[str, Any]) -> dict[str, Any]:
    metadata = {name: value for name, value in payload.items() if name not in _MEM0_FIELDS and value is not None}
    metadata |= metadata.pop("metadata", None) or {}
    for name in ("id", "categories", "score", "app_id"):
        metadata.pop(name, None)
    return metadata | {name: payload[name] for name in ("agent_id", "actor_id", "role") if payload.get(name)}


def _read_versions(
    id: str, payload: Mapping[str, Any], lines: list[dict[str, Any]], where: str
) -> Iterator[SourceItem]:
    """The wordings that a memory had before."""
    for number, line in enumerate(lines):
        if line["event"] == "UPDATE" and line["old_memory"] and line["old_memory"] != payload.get("data"):
            yield SourceRecord(
                id=f"{id}#{number}",
                text=line["old_memory"],
                where=f"{where}, as it was before",
                at=lines[number - 1]["updated_at"] or line["created_at"] if number else line["created_at"],
                user=_text(payload.get("user_id")),
                session=_text(payload.get("run_id")),
                fields={"status": "superseded", "valid_to": line["updated_at"]},
            )


def _read_history_only(
    lines: Mapping[str, list[dict[str, Any]]], ids: set[str], *, is_only_source: bool
) -> Iterator[SourceItem]:
    """What only the history tells of: all there is where the store is gone, else what was deleted."""
    for id, entries in lines.items():
        last = entries[-1]
        if id in ids:
            continue
        if last["event"] == "DELETE" or last["is_deleted"]:
            yield SkippedItem(f"memory {id}", "it was deleted there")
        elif not is_only_source:
            yield SkippedItem(f"memory {id}", "only the history tells of it, not whose it is")
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
            if row["role"] not in ("user", "assistant"):
                yield SkippedItem(f"message {row['id']}", f"what a {row['role']} says is not kept")
                continue
            yield SourceRecord(
                id=row["id"],
                text=row["content"] or "",
                where=f"message {row['id']}",
                at=row["created_at"],
                user=scope_ids.get("user_id"),
                session=session,
                role=row["role"],
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
            yield from _iter_chroma(connection)


def _iter_chroma(connection: Any) -> Iterator[_Point]:
    rows = iter_rows(
        connection,
        "SELECT e.embedding_id AS id, m.key, "
        "COALESCE(m.string_value, m.int_value, m.float_value, m.bool_value) AS value "
        "FROM embeddings e JOIN embedding_metadata m ON m.id = e.id JOIN segments s ON s.id = e.segment_id "
        "JOIN collections c ON c.id = s.collection WHERE c.name NOT LIKE '%\\_entities' ESCAPE '\\' "
        "AND c.name <> 'mem0migrations' ORDER BY e.id",
    )
    for id, group in groupby(rows, key=lambda row: str(row["id"])):
        yield id, {row["key"]: row["value"] for row in group}, f"memory {id}"


def _is_qdrant(name: str) -> bool:
    parts = name.split("/")
    return (
        parts[-1] == "storage.sqlite"
        and "collection" in parts[:-1]
        and not parts[-2].endswith(mem0_postgres.AUXILIARY_SUFFIXES)
    )


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


def _text(value: Any) -> str | None:
    return str(value) if value else None


class _Plain:
    """Stands for any object of the pickle: holds what it was given, and does nothing."""

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if module.startswith("qdrant_client.") and name in ("PointStruct", "SparseVector"):
            return _Plain
        raise pickle.UnpicklingError(f"it holds {module}.{name}, which no point does")


def _unpickle(data: bytes, where: str) -> _Point | SkippedItem:
    try:
        point = _Unpickler(io.BytesIO(data)).load().state["__dict__"]
        return str(point["id"]), dict(point["payload"] or {}), f"memory {point['id']}"
    # A pickle that was made to harm can raise anything.
    except Exception as error:
        return SkippedItem(where, f"it cannot be read safely: {error}")
