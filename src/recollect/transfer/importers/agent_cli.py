"""agent-cli: a folder with a Markdown file for each fact, turn and summary."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from recollect.errors import InvalidInput
from recollect.text.front_matter import split_front_matter
from recollect.transfer.importers.items import SkippedItem, SourceItem, SourceRecord, SourceSession
from recollect.transfer.importers.source import ImportSource

_ROLES = ("user", "assistant", "memory", "summary")


def recognise(source: ImportSource) -> str:
    """Recognise its folder `entries` by front matter that names a conversation."""
    for name in _files(source)[:20]:
        if "conversation_id:" in source.head(name).decode(errors="replace"):
            return f"{name} names a conversation and a role"
    return ""


def read(source: ImportSource) -> Iterator[SourceItem]:
    """Yield facts and turns in order, and the summary of each conversation."""
    conversations: dict[str, list[tuple[str, dict[str, Any], str]]] = {}
    for name in _files(source):
        try:
            meta, text = split_front_matter(source.text(name))
        except InvalidInput as error:
            yield SkippedItem(name, str(error))
            continue
        if "deleted" in name.split("entries/", 1)[1].split("/")[:-1]:
            yield SkippedItem(name, "replaced in the source" if meta.get("replaced_by") else "deleted in the source")
        elif meta.get("role") not in _ROLES or not meta.get("id"):
            yield SkippedItem(name, "its front matter has no id, or no known role")
        else:
            conversations.setdefault(str(meta.get("conversation_id")), []).append((name, meta, text))
    for conversation, entries in conversations.items():
        summary = ""
        for name, meta, text in sorted(entries, key=lambda entry: str(entry[1].get("created_at"))):
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
                # A model extracted the fact.
                fields={"trust": "low"} if role == "memory" else {},
            )
        yield SourceSession(session=conversation, summary=summary)


def _files(source: ImportSource) -> list[str]:
    return [name for name in source.files_ending(".md") if f"/{name}".partition("/entries/")[2].count("/")]
