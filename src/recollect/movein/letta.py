"""Letta: agent files (.af), of today's shape (lists of agents and blocks) and of the first (one agent)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from recollect.errors import InvalidInput
from recollect.movein.item import Found, Item, Left, Session, text_of
from recollect.movein.markdown import pieces
from recollect.movein.source import Source


def recognise(source: Source) -> str:
    """By the ending, or by what an agent file names."""
    for name in source.ending(".af", ".json"):
        head = source.head(name)
        if (
            name.lower().endswith(".af")
            or (b'"agents"' in head and b'"block_ids"' in head)
            or b'"core_memory"' in head
        ):
            return f"{name} is an agent file"
    return ""


def read(source: Source) -> Iterator[Item]:
    """What is in the blocks of core memory, the archive, and what was said to and by each agent."""
    for name in source.ending(".af", ".json"):
        try:
            told = source.json(name)
            if not isinstance(told, Mapping):
                raise InvalidInput(f"{name} is no agent file")
            yield from _file(told, name)
        except InvalidInput as error:
            yield Left(name, str(error))


def _file(told: Mapping[str, Any], name: str) -> Iterator[Item]:
    blocks = {each.get("id"): each for each in _maps(told.get("blocks"))}
    agents = _maps(told.get("agents")) if "agents" in told else [told]
    used: set[Any] = set()
    for agent in agents:
        own = [*_maps(agent.get("core_memory")), *_maps(agent.get("memory_blocks"))]
        shared = [blocks[id] for id in agent.get("block_ids") or () if id in blocks and id not in used]
        used |= set(agent.get("block_ids") or ())
        who = str(agent.get("name") or agent.get("id") or "agent")
        for block in [*own, *shared]:
            yield from _block(block, who, name)
        yield from _archive(agent, who, name)
        yield from _said(agent, who, name)
    for id, block in blocks.items():
        if id not in used:
            yield from _block(block, "", name)
    yield from _archive(told if "agents" in told else {}, "", name)


def _block(block: Mapping[str, Any], who: str, name: str) -> Iterator[Item]:
    label = str(block.get("label") or "block")
    where = f"{name}, block {label}"
    if label == "persona":
        yield Left(where, "it says who the agent is, nothing of the user")
        return
    for piece in pieces(str(block.get("value") or "")):
        yield Found(
            id=f"{who} {label} {' '.join(piece.path)} {piece.text}",
            text=piece.told,
            where=f"{where}, line {piece.line}",
            at=block.get("updated_at") or block.get("created_at"),
            # An agent wrote it, of what it was told.
            fields={"trust": "low", "tags": [label], "metadata": {"agent": who, "block": label}},
        )


def _archive(held: Mapping[str, Any], who: str, name: str) -> Iterator[Item]:
    for kind in ("passages", "archival_memory", "archival_passages"):
        for number, passage in enumerate(_maps(held.get(kind)), 1):
            tags = [str(tag) for tag in passage.get("tags") or ()]
            more = passage.get("metadata") or passage.get("metadata_") or {}
            yield Found(
                id=str(passage.get("id") or f"{who} {kind} {number}"),
                text=str(passage.get("text") or ""),
                where=f"{name}, {kind} {number}",
                at=passage.get("created_at"),
                fields={"trust": "low", "tags": tags, "metadata": {**more, "agent": who}},
            )


def _said(agent: Mapping[str, Any], who: str, name: str) -> Iterator[Item]:
    session = f"letta {who}"
    passed: dict[str, int] = {}
    for number, message in enumerate(_maps(agent.get("messages")), 1):
        role = message.get("role")
        words = text_of(message.get("content")) or text_of(message.get("text"))
        if role not in ("user", "assistant") or not words:
            why = (
                f"what a {role} says is not kept" if role not in ("user", "assistant") else "a message without words"
            )
            passed[why] = passed.get(why, 0) + 1
            continue
        id = f"{who} {message.get('id') or number} {message.get('created_at')}"
        where = f"{name}, message {number}"
        yield Found(id=id, text=words, where=where, at=message.get("created_at"), session=session, role=role)
    for why, count in passed.items():
        yield Left(f"{name}, agent {who}", f"{why} ({count})")
    yield Session(session=session, title=who)


def _maps(value: Any) -> list[Mapping[str, Any]]:
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []
