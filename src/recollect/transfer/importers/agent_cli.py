"""agent-cli: its folder of Markdown files, a file for each fact, turn and summary."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from recollect.errors import InvalidInput
from recollect.transfer.importers.items import SkippedItem, SourceItem, SourceRecord, SourceSession
from recollect.transfer.importers.markdown import read_front_matter
from recollect.transfer.importers.source import ImportSource

_ROLES = ("user", "assistant", "memory", "summary")


def recognise(source: ImportSource) -> str:
    """By its folder `entries` with front matter that names a conversation."""
    for name in _files(source)[:20]:
        if "conversation_id:" in source.head(name).decode(errors="replace"):
            return f"{name} names a conversation and a role"
    return ""


def read(source: ImportSource) -> Iterator[SourceItem]:
    """Facts, turns in order, and each conversation's summary; what was deleted is told of and left."""
    conversations: dict[str, list[tuple[str, dict[str, Any], str]]] = {}
    for name in _files(source):
        try:
            meta, text = read_front_matter(source.text(name), name)
        except InvalidInput as error:
            yield SkippedItem(name, str(error))
            continue
        if "deleted" in name.split("entries/", 1)[1].split("/")[:-1]:
            yield SkippedItem(
                name, "it was deleted there" if not meta.get("replaced_by") else "it was replaced there"
            )
        elif meta.get("role") not in _ROLES or not meta.get("id"):
            yield SkippedItem(name, "its front matter names no id, or no role that is known")
        else:
            conversations.setdefault(str(meta.get("conversation_id")), []).append((name, meta, text))
    for conversation, entries in conversations.items():
        yield from _read_conversation(
            conversation, sorted(entries, key=lambda entry: str(entry[1].get("created_at")))
        )


def _read_conversation(conversation: str, entries: list[tuple[str, dict[str, Any], str]]) -> Iterator[SourceItem]:
    summary = ""
    for name, meta, text in entries:
        role = meta["role"]
        if role == "summary":
            summary = text
            continue
        yield SourceRecord(
            id=str(meta["id"]),
            text=text,
            where=name,
            at=meta.get("created_at"),
            session=conversation,
            role=None if role == "memory" else role,
            cites=(str(meta["source_id"]),) if role == "memory" and meta.get("source_id") else (),
            # A fact was made by a model from what the user said.
            fields={"trust": "low"} if role == "memory" else {},
        )
    yield SourceSession(session=conversation, summary=summary)


def _files(source: ImportSource) -> list[str]:
    return [name for name in source.files_ending(".md") if f"/{name}".partition("/entries/")[2].count("/")]
