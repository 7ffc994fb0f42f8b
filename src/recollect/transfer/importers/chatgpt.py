"""ChatGPT's export: conversations as trees, of which the branch shown last is imported."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from recollect.errors import InvalidInput
from recollect.transfer.importers.items import (
    SourceItem,
    SourceRecord,
    SourceSession,
    extract_text,
    skipped_counts,
)
from recollect.transfer.importers.source import ImportSource, read_each

_VISIBLE_TYPES = ("text", "multimodal_text")


def recognise(source: ImportSource) -> str:
    """Recognise conversations with a `mapping`."""
    for name in source.json_files("conversations"):
        if b'"mapping"' in source.head(name):
            return f"{name} has conversations with a mapping"
    return ""


def read(source: ImportSource) -> Iterator[SourceItem]:
    """Yield each conversation as a session."""
    for name in source.json_files("conversations"):
        yield from read_each(source.json(name), f"{name}, conversation", _read_conversation)


def _read_conversation(conversation: Mapping[str, Any], where: str) -> Iterator[SourceItem]:
    session = str(conversation.get("conversation_id") or conversation.get("id") or where)
    hidden: Counter[str] = Counter()
    for node in _branch(conversation, where):
        message = node.get("message")
        if not message:
            continue
        role = message["author"]["role"]
        content = message.get("content") or {}
        text = extract_text(content.get("parts")) if content.get("content_type") in _VISIBLE_TYPES else ""
        if why := _skip_reason(message, role, content, text):
            hidden[why] += 1
            continue
        yield SourceRecord(
            id=str(message.get("id") or node["id"]),
            text=text,
            where=f"{where}, message {message.get('id')}",
            at=message.get("create_time") or conversation.get("create_time"),
            session=session,
            role=role,
        )
    yield from skipped_counts(where, hidden)
    yield SourceSession(session=session, title=str(conversation.get("title") or ""))


def _skip_reason(message: Mapping[str, Any], role: str, content: Mapping[str, Any], text: str) -> str:
    if role not in ("user", "assistant"):
        return f"messages of role {role} are not imported"
    if message.get("weight") == 0 or (message.get("metadata") or {}).get("is_visually_hidden_from_conversation"):
        return "a hidden message"
    if role == "assistant" and message.get("recipient", "all") != "all":
        return "tool calls are not imported"
    return "" if text else f"a message without text ({content.get('content_type')})"


def _branch(conversation: Mapping[str, Any], where: str) -> list[Mapping[str, Any]]:
    """Return the nodes from the root to the one shown last."""
    nodes = conversation["mapping"]
    last = conversation.get("current_node")
    if last not in nodes:
        leaves = [id for id, node in nodes.items() if not node.get("children")]
        last = max(leaves, key=lambda id: (nodes[id].get("message") or {}).get("create_time") or 0, default=None)
    branch: list[Mapping[str, Any]] = []
    seen: set[str] = set()
    while last is not None:
        if last in seen or last not in nodes:
            raise InvalidInput(f"{where}: its tree has a circle, or a missing node")
        seen.add(last)
        branch.append(nodes[last])
        last = nodes[last].get("parent")
    return branch[::-1]
