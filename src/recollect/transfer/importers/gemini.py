"""Transcripts of Gemini CLI: ~/.gemini/tmp, with the chats of each project and its folder in .project_root."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from recollect.errors import InvalidInput
from recollect.transfer.importers.agent_transcripts import (
    NO_FOLDER,
    SUBAGENT,
    AgentSession,
    read_lines,
    read_session,
    skip_session,
)
from recollect.transfer.importers.items import SourceItem
from recollect.transfer.importers.source import ImportSource

_CHAT = re.compile(r"(?:(.*)/)?chats/[^/]+\.jsonl?")
_ROOT_FILE = ".project_root"
_Entries = list[tuple[str, Mapping[str, Any]]]


def recognise(source: ImportSource) -> str:
    """Recognise chats of a project."""
    for name in source.names:
        if _CHAT.fullmatch(name) and b'"projectHash"' in source.head(name):
            return f"{name} has a projectHash"
    return ""


def read(source: ImportSource) -> Iterator[SourceItem]:
    """Yield the turns of each chat; those that were rewound are left out."""
    for name in source.names:
        place = _CHAT.fullmatch(name)
        if place is None:
            continue
        folder = _read_root(source, place[1] or "")
        head, messages = _read_chat(source, name)
        if not folder or not isinstance(head.get("sessionId"), str):
            yield from skip_session(name, NO_FOLDER)
        elif head.get("kind") == "subagent":
            yield from skip_session(name, SUBAGENT)
        else:
            yield from read_session(AgentSession(id=head["sessionId"], folder=folder), messages)


def _read_root(source: ImportSource, project: str) -> str:
    name = f"{project}/{_ROOT_FILE}" if project else _ROOT_FILE
    return source.text(name).strip() if name in source.names else ""


def _read_chat(source: ImportSource, name: str) -> tuple[dict[str, Any], _Entries]:
    """Return the description of a chat and its messages."""
    if name.endswith(".json"):
        document = source.json(name)
        if not isinstance(document, dict):
            raise InvalidInput(f"{name} is not a chat")
        messages = document.get("messages")
        entries = messages if isinstance(messages, list) else []
        return document, [(name, entry) for entry in entries if isinstance(entry, Mapping)]
    head: dict[str, Any] = {}
    by_id: dict[str, tuple[str, Mapping[str, Any]]] = {}
    for where, entry in read_lines(source, name):
        if isinstance(changes := entry.get("$set"), Mapping):
            head.update(changes)
        elif isinstance(target := entry.get("$rewindTo"), str):
            ids = list(by_id)
            for rewound in ids[ids.index(target) :] if target in by_id else ids:
                del by_id[rewound]
        elif isinstance(id := entry.get("id"), str):
            # A message is written anew when it grows.
            by_id[id] = (where, entry)
        elif "sessionId" in entry:
            head.update(entry)
    return head, list(by_id.values())
