"""ChatGPT's export: conversations as trees, of which the branch that was last shown is taken."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from recollect.errors import InvalidInput
from recollect.movein.item import Found, Item, Left, Session, text_of
from recollect.movein.source import Source

_SHOWN = ("text", "multimodal_text")


def recognise(source: Source) -> str:
    """By conversations that have a `mapping`."""
    for name in _files(source):
        if b'"mapping"' in source.head(name):
            return f"{name} has conversations with a mapping"
    return ""


def read(source: Source) -> Iterator[Item]:
    """Each conversation as a session."""
    for name in _files(source):
        told = source.json(name)
        talks = told if isinstance(told, list) else [told]
        for number, talk in enumerate(talks, 1):
            where = f"{name}, conversation {number}"
            try:
                yield from _talk(talk, where)
            except (InvalidInput, KeyError, TypeError, AttributeError, ValueError) as error:
                yield Left(where, f"it is not as conversations are: {type(error).__name__} {error}")


def _talk(talk: Mapping[str, Any], where: str) -> Iterator[Item]:
    session = str(talk.get("conversation_id") or talk.get("id") or where)
    hidden: dict[str, int] = {}
    for node in _branch(talk, where):
        message = node.get("message")
        if not message:
            continue
        role = message["author"]["role"]
        content = message.get("content") or {}
        words = text_of(content.get("parts")) if content.get("content_type") in _SHOWN else ""
        if why := _why_not(message, role, content, words):
            hidden[why] = hidden.get(why, 0) + 1
            continue
        yield Found(
            id=str(message.get("id") or node["id"]),
            text=words,
            where=f"{where}, message {message.get('id')}",
            at=message.get("create_time") or talk.get("create_time"),
            session=session,
            role=role,
        )
    for why, count in hidden.items():
        yield Left(where, f"{why} ({count})" if count > 1 else why)
    yield Session(session=session, title=str(talk.get("title") or ""))


def _why_not(message: Mapping[str, Any], role: str, content: Mapping[str, Any], words: str) -> str:
    if role not in ("user", "assistant"):
        return f"what a {role} says is not kept"
    if message.get("weight") == 0 or (message.get("metadata") or {}).get("is_visually_hidden_from_conversation"):
        return "a message that was not shown"
    if role == "assistant" and message.get("recipient", "all") != "all":
        return "what is said to a tool is not kept"
    return "" if words else f"a message without words ({content.get('content_type')})"


def _branch(talk: Mapping[str, Any], where: str) -> list[Mapping[str, Any]]:
    """The nodes from the first to the one last shown."""
    nodes = talk["mapping"]
    last = talk.get("current_node")
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


def _files(source: Source) -> list[str]:
    names = source.ending(".json")
    named = [name for name in names if name.rsplit("/", 1)[-1].startswith("conversations")]
    return named or (names if len(names) == 1 else [])
