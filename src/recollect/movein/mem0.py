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

from recollect.movein import mem0_api, mem0_tables
from recollect.movein.item import Found, Item, Left, Session
from recollect.movein.rows import has_tables, opened, rows_of
from recollect.movein.source import Source

_OURS = {
    "data", "memory", "hash", "created_at", "updated_at", "user_id", "agent_id", "run_id", "actor_id", "role",
    "text_lemmatized", "attributed_to", "expiration_date",
}  # fmt: skip
_Point: TypeAlias = tuple[str, Mapping[str, Any], str]


def recognise(source: Source) -> str:
    """By its address, or by the files it writes."""
    if source.is_database:
        return mem0_tables.recognise(source)
    if source.is_address:
        return "it is an address"
    names = source.names
    if any(_is_qdrant(name) for name in names):
        return "it has a qdrant folder"
    for name in source.ending("chroma.sqlite3"):
        if _holds_mem0(source, name):
            return "it has a Chroma folder with its memories"
    history = [name for name in source.ending(".db") if _is_history(source, name)]
    return f"{history[0]} is its history" if history else ""


def read(source: Source) -> Iterator[Item]:
    """What it knows, what it knew before and replaced, and the last things said."""
    if source.is_address:
        yield from (mem0_tables if source.is_database else mem0_api).read(source)
        return
    history = [name for name in source.ending(".db") if _is_history(source, name)]
    lines: dict[str, list[dict[str, Any]]] = {}
    for name in history:
        with opened(source, name) as connection:
            for row in rows_of(connection, "SELECT * FROM history ORDER BY memory_id, updated_at, created_at"):
                lines.setdefault(str(row["memory_id"]), []).append(row)
    known: set[str] = set()
    for point in _points(source):
        if isinstance(point, Left):
            yield point
            continue
        id, payload, where = point
        known.add(id)
        yield from remembered(id, payload, where)
        yield from _before(id, payload, lines.get(id, []), where)
    yield from _lost(lines, known, alone=not known)
    for name in history:
        yield from _said(source, name)


def remembered(id: str, payload: Mapping[str, Any], where: str) -> Iterator[Item]:
    """A memory as mem0 describes it, in its store or by its API."""
    text = payload.get("data") or payload.get("memory")
    if not isinstance(text, str):
        yield Left(where, "it has no words")
        return
    yield Found(
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
    more = {name: value for name, value in payload.items() if name not in _OURS and value is not None}
    more |= more.pop("metadata", None) or {}
    for name in ("id", "categories", "score", "app_id"):
        more.pop(name, None)
    return more | {name: payload[name] for name in ("agent_id", "actor_id", "role") if payload.get(name)}


def _before(id: str, payload: Mapping[str, Any], lines: list[dict[str, Any]], where: str) -> Iterator[Item]:
    """The wordings that a memory had before."""
    for number, line in enumerate(lines):
        if line["event"] == "UPDATE" and line["old_memory"] and line["old_memory"] != payload.get("data"):
            yield Found(
                id=f"{id}#{number}",
                text=line["old_memory"],
                where=f"{where}, as it was before",
                at=lines[number - 1]["updated_at"] or line["created_at"] if number else line["created_at"],
                user=_text(payload.get("user_id")),
                session=_text(payload.get("run_id")),
                fields={"status": "superseded", "valid_to": line["updated_at"]},
            )


def _lost(lines: Mapping[str, list[dict[str, Any]]], known: set[str], *, alone: bool) -> Iterator[Item]:
    """What only the history tells of: all there is where the store is gone, else what was deleted."""
    for id, told in lines.items():
        last = told[-1]
        if id in known:
            continue
        if last["event"] == "DELETE" or last["is_deleted"]:
            yield Left(f"memory {id}", "it was deleted there")
        elif not alone:
            yield Left(f"memory {id}", "only the history tells of it, not whose it is")
        else:
            yield Found(
                id=id,
                text=last["new_memory"] or "",
                where=f"memory {id} of the history",
                at=told[0]["created_at"],
                fields={"updated_at": last["updated_at"] or last["created_at"]},
            )


def _said(source: Source, name: str) -> Iterator[Item]:
    with opened(source, name) as connection:
        if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'messages'").fetchone():
            return
        rows = list(rows_of(connection, "SELECT * FROM messages ORDER BY session_scope, created_at, rowid"))
    for scope, group in groupby(rows, key=lambda row: row["session_scope"] or ""):
        whose = dict(parse_qsl(scope))
        session = whose.get("run_id") or f"mem0 {scope}"
        for row in group:
            if row["role"] not in ("user", "assistant"):
                yield Left(f"message {row['id']}", f"what a {row['role']} says is not kept")
                continue
            yield Found(
                id=row["id"],
                text=row["content"] or "",
                where=f"message {row['id']}",
                at=row["created_at"],
                user=whose.get("user_id"),
                session=session,
                role=row["role"],
                name=row["name"],
            )
        yield Session(session=session, user=whose.get("user_id"))


def _points(source: Source) -> Iterator[_Point | Left]:
    for name in filter(_is_qdrant, source.names):
        with opened(source, name) as connection:
            for number, row in enumerate(rows_of(connection, "SELECT point FROM points ORDER BY rowid"), 1):
                yield _unpickled(row["point"], f"{name}, point {number}")
    for name in source.ending("chroma.sqlite3"):
        with opened(source, name) as connection:
            yield from _chroma(connection)


def _chroma(connection: Any) -> Iterator[_Point]:
    rows = rows_of(
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
    return parts[-1] == "storage.sqlite" and "collection" in parts[:-1] and not parts[-2].endswith(mem0_tables.BESIDE)


def _is_history(source: Source, name: str) -> bool:
    if not has_tables(source, name, "history"):
        return False
    with opened(source, name) as connection:
        columns = {row[1] for row in connection.execute("PRAGMA table_info(history)")}
    return {"memory_id", "old_memory", "new_memory", "event"} <= columns


def _holds_mem0(source: Source, name: str) -> bool:
    if not has_tables(source, name, "collections", "embeddings", "embedding_metadata"):
        return False
    with opened(source, name) as connection:
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


def _unpickled(data: bytes, where: str) -> _Point | Left:
    try:
        held = _Unpickler(io.BytesIO(data)).load().state["__dict__"]
        return str(held["id"]), dict(held["payload"] or {}), f"memory {held['id']}"
    # A pickle that was made to harm can raise anything.
    except Exception as error:
        return Left(where, f"it cannot be read safely: {error}")
