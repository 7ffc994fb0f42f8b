"""Claude's export: conversations with `chat_messages`, memories and projects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from recollect.transfer.importers.items import (
    SkippedItem,
    SourceItem,
    SourceRecord,
    SourceSession,
    extract_text,
    read_turn,
)
from recollect.transfer.importers.markdown import iter_blocks
from recollect.transfer.importers.source import ImportSource, read_each


def recognise(source: ImportSource) -> str:
    """Recognise conversations with `chat_messages`."""
    for name in source.json_files("conversations"):
        if b'"chat_messages"' in source.head(name):
            return f"{name} has conversations with chat_messages"
    return ""


def read(source: ImportSource) -> Iterator[SourceItem]:
    """Yield each conversation as a session, then Claude's memories of the user and of each project."""
    for name in source.json_files("conversations"):
        yield from read_each(source.json(name), f"{name}, conversation", _read_conversation)
    for name in source.json_files("memories", allow_any=False):
        yield from read_each(source.json(name), f"{name}, entry", _read_memories)
    for name in source.json_files("projects", allow_any=False):
        yield from read_each(source.json(name), f"{name}, project", _read_project)


def _read_conversation(conversation: Mapping[str, Any], where: str) -> Iterator[SourceItem]:
    session = str(conversation["uuid"])
    project = conversation.get("project")
    project_id = project.get("uuid") if isinstance(project, Mapping) else None
    for message in conversation["chat_messages"]:
        yield read_turn(
            message.get("sender"),
            extract_text(message.get("content")) or extract_text(message.get("text")),
            where=f"{where}, message {message.get('uuid')}",
            id=str(message["uuid"]),
            at=message.get("created_at") or conversation.get("created_at"),
            session=session,
            project=project_id,
        )
    title, summary = str(conversation.get("name") or ""), str(conversation.get("summary") or "")
    yield SourceSession(session=session, project=project_id, title=title, summary=summary)


def _read_memories(data: Mapping[str, Any], where: str) -> Iterator[SourceItem]:
    texts = {None: data.get("conversations_memory"), **(data.get("project_memories") or {})}
    for project, text in texts.items():
        for number, block in enumerate(iter_blocks(text if isinstance(text, str) else ""), 1):
            yield SourceRecord(
                id=f"memory {project or ''} {block.path} {block.text}",
                text=block.text_with_heading,
                where=f"{where}, piece {number}",
                project=project,
                # A model wrote it.
                fields={"trust": "low"},
            )


def _read_project(project: Mapping[str, Any], where: str) -> Iterator[SourceItem]:
    if text := project.get("prompt_template"):
        yield SourceRecord(
            id=f"prompt {project.get('uuid')}",
            text=str(text),
            where=where,
            at=project.get("updated_at") or project.get("created_at"),
            project=str(project.get("uuid")),
            fields={"category": "instruction", "metadata": {"project": project.get("name")}},
        )
    if docs := project.get("docs"):
        yield SkippedItem(where, f"documents of a project are not imported ({len(docs)})")
