"""Zep and Graphiti: episodes become what was said, edges become facts with the time for which they hold.

JSON or JSON Lines: a list of either, or an object with `episodes`, `edges` (or `facts`) and `messages`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from recollect.movein.item import Found, Item, Left, Session
from recollect.movein.source import Source

_LISTS = ("episodes", "edges", "facts", "messages", "results")
_ROLES = {"user": "user", "human": "user", "assistant": "assistant", "ai": "assistant"}


def recognise(source: Source) -> str:
    """By what its objects are called."""
    for name in _files(source):
        head = source.head(name)
        if b'"fact"' in head and (b'"source_node_uuid"' in head or b'"valid_at"' in head):
            return f"{name} has facts with the time for which they hold"
        if b'"source_description"' in head and b'"valid_at"' in head:
            return f"{name} has episodes"
        if b'"role_type"' in head and b'"uuid"' in head:
            return f"{name} has messages of Zep"
    return ""


def read(source: Source) -> Iterator[Item]:
    """Each object by itself; one that is of no kind we know is told of."""
    sessions: dict[tuple[str | None, str], None] = {}
    for name in _files(source):
        for where, each in _objects(source, name):
            for item in [each] if isinstance(each, Left) else _item(each, where):
                if isinstance(item, Found) and item.role and item.session:
                    sessions[item.user, item.session] = None
                yield item
    for user, session in sessions:
        yield Session(session=session, user=user)


def _item(told: Any, where: str) -> Iterator[Item]:
    if not isinstance(told, Mapping):
        yield Left(where, "it is no object")
    elif isinstance(told.get("fact"), str):
        yield _fact(told, where)
    elif "role_type" in told or "role" in told:
        yield _message(told, where)
    elif isinstance(told.get("content"), str):
        yield from _episode(told, where)
    else:
        yield Left(where, "it is neither an episode nor a fact")


def _fact(edge: Mapping[str, Any], where: str) -> Found:
    fields = {
        "trust": "low",
        "valid_from": edge.get("valid_at"),
        "valid_to": edge.get("invalid_at"),
        # Known to be wrong since then, for whatever time it was thought to hold.
        "status": "superseded" if edge.get("invalid_at") or edge.get("expired_at") else None,
        "metadata": {"relation": edge.get("name"), **(edge.get("attributes") or {})},
    }
    return Found(
        id=str(edge.get("uuid") or edge["fact"]),
        text=edge["fact"],
        where=where,
        at=edge.get("created_at") or edge.get("valid_at"),
        user=_text(edge.get("group_id") or edge.get("user_id")),
        fields=fields,
    )


def _message(told: Mapping[str, Any], where: str) -> Item:
    role = _ROLES.get(str(told.get("role_type") or told.get("role")).lower())
    if role is None:
        return Left(where, f"what a {told.get('role_type') or told.get('role')} says is not kept")
    return Found(
        id=str(told.get("uuid") or f"{where}"),
        text=str(told.get("content") or ""),
        where=where,
        at=told.get("created_at") or told.get("valid_at"),
        user=_text(told.get("user_id") or told.get("group_id")),
        session=_text(told.get("session_id") or told.get("thread_id")) or "zep",
        role=role,
        name=_text(told.get("name")),
    )


def _episode(told: Mapping[str, Any], where: str) -> Iterator[Item]:
    """A message is a line a speaker, as Graphiti takes them: `name: words`; text and JSON are kept as they are."""
    common: dict[str, Any] = {
        "at": told.get("valid_at") or told.get("created_at"),
        "user": _text(told.get("group_id") or told.get("user_id")),
        "where": where,
    }
    id, kind = str(told.get("uuid") or where), str(told.get("source") or "text")
    if kind != "message":
        more = {"episode": told.get("name"), "of": told.get("source_description")}
        yield Found(id=id, text=told["content"], fields={"category": "event", "metadata": more}, **common)
        return
    for number, line in enumerate(told["content"].splitlines()):
        who, found, words = line.partition(":")
        if line.strip():
            role = _ROLES.get(who.rpartition("(")[2].strip(" )").lower() if found else "", "user")
            name = who.partition("(")[0].strip() if found else None
            said = words.strip() if found and words.strip() else line
            session = _text(told.get("session_id")) or "graphiti"
            yield Found(id=f"{id} {number}", text=said, session=session, role=role, name=name, **common)


def _objects(source: Source, name: str) -> Iterator[tuple[str, Any]]:
    if name.lower().endswith(".jsonl"):
        for number, each in source.json_lines(name):
            yield f"{name}, line {number}", each
        return
    told = source.json(name)
    if isinstance(told, Mapping):
        for kind in _LISTS:
            for number, each in enumerate(told.get(kind) or (), 1):
                yield f"{name}, {kind} {number}", each
        if not any(kind in told for kind in _LISTS):
            yield name, told
    else:
        for number, each in enumerate(told if isinstance(told, list) else [told], 1):
            yield f"{name}, entry {number}", each


def _files(source: Source) -> list[str]:
    return source.ending(".json", ".jsonl")


def _text(value: Any) -> str | None:
    return str(value) if value else None
