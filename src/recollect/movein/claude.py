"""Claude's export: conversations with `chat_messages`, and the memories and projects beside them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from recollect.errors import InvalidInput
from recollect.movein.item import Found, Item, Left, Session, text_of
from recollect.movein.markdown import pieces
from recollect.movein.source import Source

_ROLES = {"human": "user", "user": "user", "assistant": "assistant"}


def recognise(source: Source) -> str:
    """By conversations that have `chat_messages`."""
    for name in _named(source, "conversations"):
        if b'"chat_messages"' in source.head(name):
            return f"{name} has conversations with chat_messages"
    return ""


def read(source: Source) -> Iterator[Item]:
    """Each conversation as a session, then what Claude had written down of the user and of each project."""
    for name in _named(source, "conversations"):
        for number, talk in enumerate(_listed(source.json(name)), 1):
            where = f"{name}, conversation {number}"
            try:
                yield from _talk(talk, where)
            except (InvalidInput, KeyError, TypeError, AttributeError, ValueError) as error:
                yield Left(where, f"it is not as conversations are: {type(error).__name__} {error}")
    for name in _named(source, "memories", alone=False):
        for number, told in enumerate(_listed(source.json(name)), 1):
            yield from _memories(told, f"{name}, entry {number}")
    for name in _named(source, "projects", alone=False):
        for number, project in enumerate(_listed(source.json(name)), 1):
            yield from _project(project, f"{name}, project {number}")


def _talk(talk: Mapping[str, Any], where: str) -> Iterator[Item]:
    session = str(talk["uuid"])
    project = (talk.get("project") or {}).get("uuid") if isinstance(talk.get("project"), Mapping) else None
    for message in talk["chat_messages"]:
        place = f"{where}, message {message.get('uuid')}"
        role = _ROLES.get(message.get("sender"))
        words = text_of(message.get("content")) or text_of(message.get("text"))
        if role is None:
            yield Left(place, f"what a {message.get('sender')} says is not kept")
        elif not words:
            yield Left(place, "a message without words")
        else:
            at = message.get("created_at") or talk.get("created_at")
            yield Found(
                id=str(message["uuid"]), text=words, where=place, at=at, session=session, project=project, role=role
            )
    title = str(talk.get("name") or "")
    yield Session(session=session, project=project, title=title, summary=str(talk.get("summary") or ""))


def _memories(told: Mapping[str, Any], where: str) -> Iterator[Item]:
    texts = [(None, told.get("conversations_memory"))]
    texts += list((told.get("project_memories") or {}).items())
    for project, text in texts:
        if not isinstance(text, str):
            continue
        for number, piece in enumerate(pieces(text), 1):
            yield Found(
                id=f"memory {project or ''} {piece.path} {piece.text}",
                text=piece.told,
                where=f"{where}, piece {number}",
                project=project,
                # Written by a model, of what the user had said.
                fields={"trust": "low"},
            )


def _project(project: Mapping[str, Any], where: str) -> Iterator[Item]:
    if text := project.get("prompt_template"):
        yield Found(
            id=f"prompt {project.get('uuid')}",
            text=str(text),
            where=where,
            at=project.get("updated_at") or project.get("created_at"),
            project=str(project.get("uuid")),
            fields={"category": "instruction", "metadata": {"project": project.get("name")}},
        )
    if docs := project.get("docs"):
        yield Left(where, f"documents of a project are not memories ({len(docs)})")


def _listed(told: Any) -> list[Any]:
    return told if isinstance(told, list) else [told]


def _named(source: Source, word: str, *, alone: bool = True) -> list[str]:
    names = source.ending(".json")
    named = [name for name in names if name.rsplit("/", 1)[-1].startswith(word)]
    return named or (names if alone and len(names) == 1 else [])
