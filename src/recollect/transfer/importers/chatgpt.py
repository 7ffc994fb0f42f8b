"""ChatGPT's export: conversations as trees, of which the branch that was last shown is taken."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from recollect.errors import InvalidInput
from recollect.transfer.importers.items import SkippedItem, SourceItem, SourceRecord, SourceSession, extract_text
from recollect.transfer.importers.source import ImportSource

_VISIBLE_TYPES = ("text", "multimodal_text")


def recognise(source: ImportSource) -> str:
    """By conversations that have a `mapping`."""
    for name in _files(source):
        if b'"mapping"' in source.head(name):
            return f"{name} has conversations with a mapping"
    return ""


def read(source: ImportSource) -> Iterator[SourceItem]:
    """Each conversation as a session."""
    for name in _files(source):
        data = source.json(name)
        conversations = data if isinstance(data, list) else [data]
        for number, conversation in enumerate(conversations, 1):
            where = f"{name}, conversation {number}"
            try:
                yield from _read_conversation(conversation, where)
            except (InvalidInput, KeyError, TypeError, AttributeError, ValueError) as error:
                yield SkippedItem(where, f"it is not as conversations are: {type(error).__name__} {error}")


def _read_conversation(conversation: Mapping[str, Any], where: str) -> Iterator[SourceItem]:
    session = str(conversation.get("conversation_id") or conversation.get("id") or where)
    hidden: dict[str, int] = {}
    for node in _branch(conversation, where):
        message = node.get("message")
        if not message:
            continue
        role = message["author"]["role"]
        content = message.get("content") or {}
        text = extract_text(content.get("parts")) if content.get("content_type") in _VISIBLE_TYPES else ""
        if why := _skip_reason(message, role, content, text):
            hidden[why] = hidden.get(why, 0) + 1
            continue
        yield SourceRecord(
            id=str(message.get("id") or node["id"]),
            text=text,
            where=f"{where}, message {message.get('id')}",
            at=message.get("create_time") or conversation.get("create_time"),
            session=session,
            role=role,
        )
    for why, count in hidden.items():
        yield SkippedItem(where, f"{why} ({count})" if count > 1 else why)
    yield SourceSession(session=session, title=str(conversation.get("title") or ""))


def _skip_reason(message: Mapping[str, Any], role: str, content: Mapping[str, Any], text: str) -> str:
    if role not in ("user", "assistant"):
        return f"what a {role} says is not kept"
    if message.get("weight") == 0 or (message.get("metadata") or {}).get("is_visually_hidden_from_conversation"):
        return "a message that was not shown"
    if role == "assistant" and message.get("recipient", "all") != "all":
        return "what is said to a tool is not kept"
    return "" if text else f"a message without words ({content.get('content_type')})"


def _branch(conversation: Mapping[str, Any], where: str) -> list[Mapping[str, Any]]:
    """The nodes from the first to the one last shown."""
    nodes = conversation["mapping"]
    last = conversation.get("current_node")
    if last not in nodes:
        # Without it: the newest message that nothing follows.
        ends = [id for id, node in nodes.items() if not node.get("children")]
        last = max(ends, key=lambda id: (nodes[id].get("message") or {}).get("create_time") or 0, default=None)
    branch: list[Mapping[str, Any]] = []
    seen: set[str] = set()
    while last is not None:
        if last in seen or last not in nodes:
            raise InvalidInput(f"{where}: its tree leads in a circle, or to nothing")
        seen.add(last)
        branch.append(nodes[last])
        last = nodes[last].get("parent")
    return branch[::-1]


def _files(source: ImportSource) -> list[str]:
    names = source.files_ending(".json")
    named = [name for name in names if name.rsplit("/", 1)[-1].startswith("conversations")]
    return named or (names if len(names) == 1 else [])
