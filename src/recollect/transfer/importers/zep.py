"""Zep and Graphiti: episodes become turns or events, edges become facts with their validity.

JSON or JSON Lines: a list of either, or an object with `episodes`, `edges` (or `facts`) and `messages`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from recollect.transfer.importers.items import (
    SPEAKERS,
    SkippedItem,
    SourceItem,
    SourceRecord,
    SourceSession,
    optional_text,
    read_turn,
)
from recollect.transfer.importers.source import ImportSource

_LISTS = ("episodes", "edges", "facts", "messages", "results")


def recognise(source: ImportSource) -> str:
    """Recognise the fields of its objects."""
    for name in _files(source):
        head = source.head(name)
        if b'"fact"' in head and (b'"source_node_uuid"' in head or b'"valid_at"' in head):
            return f"{name} has facts with their validity"
        if b'"source_description"' in head and b'"valid_at"' in head:
            return f"{name} has episodes"
        if b'"role_type"' in head and b'"uuid"' in head:
            return f"{name} has messages of Zep"
    return ""


def read(source: ImportSource) -> Iterator[SourceItem]:
    """Yield the item of each object; one of an unknown kind is skipped."""
    sessions: dict[tuple[str | None, str], None] = {}
    for name in _files(source):
        for where, each in _iter_objects(source, name):
            for item in [each] if isinstance(each, SkippedItem) else _read_item(each, where):
                if isinstance(item, SourceRecord) and item.role and item.session:
                    sessions[item.user, item.session] = None
                yield item
    for user, session in sessions:
        yield SourceSession(session=session, user=user)


def _read_item(data: Any, where: str) -> Iterator[SourceItem]:
    if not isinstance(data, Mapping):
        yield SkippedItem(where, "not an object")
    elif isinstance(data.get("fact"), str):
        yield _read_fact(data, where)
    elif "role_type" in data or "role" in data:
        yield _read_message(data, where)
    elif isinstance(data.get("content"), str):
        yield from _read_episode(data, where)
    else:
        yield SkippedItem(where, "neither an episode nor a fact")


def _read_fact(edge: Mapping[str, Any], where: str) -> SourceRecord:
    fields = {
        "trust": "low",
        "valid_from": edge.get("valid_at"),
        "valid_to": edge.get("invalid_at"),
        # An expired edge was found to be wrong.
        "status": "superseded" if edge.get("invalid_at") or edge.get("expired_at") else None,
        "metadata": {"relation": edge.get("name"), **(edge.get("attributes") or {})},
    }
    return SourceRecord(
        id=str(edge.get("uuid") or edge["fact"]),
        text=edge["fact"],
        where=where,
        at=edge.get("created_at") or edge.get("valid_at"),
        user=optional_text(edge.get("group_id") or edge.get("user_id")),
        fields=fields,
    )


def _read_message(data: Mapping[str, Any], where: str) -> SourceItem:
    return read_turn(
        data.get("role_type") or data.get("role"),
        str(data.get("content") or ""),
        where=where,
        id=str(data.get("uuid") or where),
        at=data.get("created_at") or data.get("valid_at"),
        user=optional_text(data.get("user_id") or data.get("group_id")),
        session=optional_text(data.get("session_id") or data.get("thread_id")) or "zep",
        name=optional_text(data.get("name")),
    )


def _read_episode(data: Mapping[str, Any], where: str) -> Iterator[SourceItem]:
    """Yield a turn for each line `speaker: text` of a message episode; text and JSON are one event."""
    common: dict[str, Any] = {
        "at": data.get("valid_at") or data.get("created_at"),
        "user": optional_text(data.get("group_id") or data.get("user_id")),
        "where": where,
    }
    id, kind = str(data.get("uuid") or where), str(data.get("source") or "text")
    if kind != "message":
        metadata = {"episode": data.get("name"), "of": data.get("source_description")}
        yield SourceRecord(id=id, text=data["content"], fields={"category": "event", "metadata": metadata}, **common)
        return
    for number, line in enumerate(data["content"].splitlines()):
        speaker, separator, spoken = line.partition(":")
        if line.strip():
            role = SPEAKERS.get(speaker.rpartition("(")[2].strip(" )").lower() if separator else "", "user")
            name = speaker.partition("(")[0].strip() if separator else None
            text = spoken.strip() if separator and spoken.strip() else line
            session = optional_text(data.get("session_id")) or "graphiti"
            yield SourceRecord(id=f"{id} {number}", text=text, session=session, role=role, name=name, **common)


def _iter_objects(source: ImportSource, name: str) -> Iterator[tuple[str, Any]]:
    if name.lower().endswith(".jsonl"):
        yield from source.json_lines(name)
        return
    data = source.json(name)
    if isinstance(data, Mapping):
        for kind in _LISTS:
            for number, each in enumerate(data.get(kind) or (), 1):
                yield f"{name}, {kind} {number}", each
        if not any(kind in data for kind in _LISTS):
            yield name, data
    else:
        for number, each in enumerate(data if isinstance(data, list) else [data], 1):
            yield f"{name}, entry {number}", each


def _files(source: ImportSource) -> list[str]:
    return source.files_ending(".json", ".jsonl")
