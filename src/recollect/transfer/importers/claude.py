"""Claude's export: conversations with `chat_messages`, and the memories and projects beside them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from recollect.errors import InvalidInput
from recollect.transfer.importers.items import SkippedItem, SourceItem, SourceRecord, SourceSession, extract_text
from recollect.transfer.importers.markdown import iter_blocks
from recollect.transfer.importers.source import ImportSource

_ROLES = {"human": "user", "user": "user", "assistant": "assistant"}


def recognise(source: ImportSource) -> str:
    """By conversations that have `chat_messages`."""
    for name in _files_named(source, "conversations"):
        if b'"chat_messages"' in source.head(name):
            return f"{name} has conversations with chat_messages"
    return ""


def read(source: ImportSource) -> Iterator[SourceItem]:
    """Each conversation as a session, then what Claude had written down of the user and of each project."""
    for name in _files_named(source, "conversations"):
        for number, conversation in enumerate(_as_list(source.json(name)), 1):
            where = f"{name}, conversation {number}"
            try:
                yield from _read_conversation(conversation, where)
            except (InvalidInput, KeyError, TypeError, AttributeError, ValueError) as error:
                yield SkippedItem(where, f"it is not as conversations are: {type(error).__name__} {error}")
    for name in _files_named(source, "memories", alone=False):
        for number, data in enumerate(_as_list(source.json(name)), 1):
            yield from _read_memories(data, f"{name}, entry {number}")
    for name in _files_named(source, "projects", alone=False):
        for number, project in enumerate(_as_list(source.json(name)), 1):
            yield from _read_project(project, f"{name}, project {number}")


def _read_conversation(conversation: Mapping[str, Any], where: str) -> Iterator[SourceItem]:
    session = str(conversation["uuid"])
    project = (
        (conversation.get("project") or {}).get("uuid") if isinstance(conversation.get("project"), Mapping) else None
    )
    for message in conversation["chat_messages"]:
        location = f"{where}, message {message.get('uuid')}"
        role = _ROLES.get(message.get("sender"))
        text = extract_text(message.get("content")) or extract_text(message.get("text"))
        if role is None:
            yield SkippedItem(location, f"what a {message.get('sender')} says is not kept")
        elif not text:
            yield SkippedItem(location, "a message without words")
        else:
            at = message.get("created_at") or conversation.get("created_at")
            yield SourceRecord(
                id=str(message["uuid"]), text=text, where=location, at=at, session=session, project=project, role=role
            )
    title = str(conversation.get("name") or "")
    yield SourceSession(session=session, project=project, title=title, summary=str(conversation.get("summary") or ""))


def _read_memories(data: Mapping[str, Any], where: str) -> Iterator[SourceItem]:
    texts = [(None, data.get("conversations_memory"))]
    texts += list((data.get("project_memories") or {}).items())
    for project, text in texts:
        if not isinstance(text, str):
            continue
        for number, block in enumerate(iter_blocks(text), 1):
            yield SourceRecord(
                id=f"memory {project or ''} {block.path} {block.text}",
                text=block.text_with_heading,
                where=f"{where}, piece {number}",
                project=project,
                # Written by a model, of what the user had said.
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
        yield SkippedItem(where, f"documents of a project are not memories ({len(docs)})")


def _as_list(data: Any) -> list[Any]:
    return data if isinstance(data, list) else [data]


def _files_named(source: ImportSource, word: str, *, alone: bool = True) -> list[str]:
    names = source.files_ending(".json")
    named = [name for name in names if name.rsplit("/", 1)[-1].startswith(word)]
    return named or (names if alone and len(names) == 1 else [])
