"""agent-cli: its folder of Markdown files, a file for each fact, turn and summary."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from recollect.errors import InvalidInput
from recollect.movein.front_matter import split
from recollect.movein.item import Found, Item, Left, Session
from recollect.movein.source import Source

_ROLES = ("user", "assistant", "memory", "summary")


def recognise(source: Source) -> str:
    """By its folder `entries` with front matter that names a conversation."""
    for name in _files(source)[:20]:
        if "conversation_id:" in source.head(name).decode(errors="replace"):
            return f"{name} names a conversation and a role"
    return ""


def read(source: Source) -> Iterator[Item]:
    """Facts, turns in order, and each conversation's summary; what was deleted is told of and left."""
    talks: dict[str, list[tuple[str, dict[str, Any], str]]] = {}
    for name in _files(source):
        try:
            meta, words = split(source.text(name), name)
        except InvalidInput as error:
            yield Left(name, str(error))
            continue
        if "deleted" in name.split("entries/", 1)[1].split("/")[:-1]:
            yield Left(name, "it was deleted there" if not meta.get("replaced_by") else "it was replaced there")
        elif meta.get("role") not in _ROLES or not meta.get("id"):
            yield Left(name, "its front matter names no id, or no role that is known")
        else:
            talks.setdefault(str(meta.get("conversation_id")), []).append((name, meta, words))
    for talk, entries in talks.items():
        yield from _talk(talk, sorted(entries, key=lambda entry: str(entry[1].get("created_at"))))


def _talk(talk: str, entries: list[tuple[str, dict[str, Any], str]]) -> Iterator[Item]:
    summary = ""
    for name, meta, words in entries:
        role = meta["role"]
        if role == "summary":
            summary = words
            continue
        yield Found(
            id=str(meta["id"]),
            text=words,
            where=name,
            at=meta.get("created_at"),
            session=talk,
            role=None if role == "memory" else role,
            cites=(str(meta["source_id"]),) if role == "memory" and meta.get("source_id") else (),
            # A fact was made by a model from what the user said.
            fields={"trust": "low"} if role == "memory" else {},
        )
    yield Session(session=talk, summary=summary)


def _files(source: Source) -> list[str]:
    return [name for name in source.ending(".md") if f"/{name}".partition("/entries/")[2].count("/")]
