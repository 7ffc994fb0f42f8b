"""Letta: agent files (.af), of the current format (lists of agents and blocks) and of the first (one agent)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from recollect.errors import InvalidInput
from recollect.transfer.importers.items import (
    SkippedItem,
    SourceItem,
    SourceRecord,
    SourceSession,
    extract_text,
    skipped_counts,
)
from recollect.transfer.importers.markdown import iter_blocks
from recollect.transfer.importers.source import ImportSource


def recognise(source: ImportSource) -> str:
    """Recognise the file ending, or the fields of an agent file."""
    for name in source.files_ending(".af", ".json"):
        head = source.head(name)
        has_agents = b'"agents"' in head and b'"block_ids"' in head
        if name.lower().endswith(".af") or has_agents or b'"core_memory"' in head:
            return f"{name} is an agent file"
    return ""


def read(source: ImportSource) -> Iterator[SourceItem]:
    """Yield the blocks of core memory, the archive, and the messages of each agent."""
    for name in source.files_ending(".af", ".json"):
        try:
            data = source.json(name)
            if not isinstance(data, Mapping):
                raise InvalidInput(f"{name} is not an agent file")
            yield from _read_file(data, name)
        except InvalidInput as error:
            yield SkippedItem(name, str(error))


def _read_file(data: Mapping[str, Any], name: str) -> Iterator[SourceItem]:
    blocks = {each.get("id"): each for each in _mappings(data.get("blocks"))}
    agents = _mappings(data.get("agents")) if "agents" in data else [data]
    used: set[Any] = set()
    for agent in agents:
        own = [*_mappings(agent.get("core_memory")), *_mappings(agent.get("memory_blocks"))]
        shared = [blocks[id] for id in agent.get("block_ids") or () if id in blocks and id not in used]
        used |= set(agent.get("block_ids") or ())
        agent_name = str(agent.get("name") or agent.get("id") or "agent")
        for block in [*own, *shared]:
            yield from _read_block(block, agent_name, name)
        yield from _read_archive(agent, agent_name, name)
        yield from _read_messages(agent, agent_name, name)
    for id, block in blocks.items():
        if id not in used:
            yield from _read_block(block, "", name)
    yield from _read_archive(data if "agents" in data else {}, "", name)


def _read_block(block: Mapping[str, Any], agent_name: str, name: str) -> Iterator[SourceItem]:
    label = str(block.get("label") or "block")
    where = f"{name}, block {label}"
    if label == "persona":
        yield SkippedItem(where, "the persona describes the agent, not the user")
        return
    for passage in iter_blocks(str(block.get("value") or "")):
        yield SourceRecord(
            id=f"{agent_name} {label} {' '.join(passage.path)} {passage.text}",
            text=passage.text_with_heading,
            where=f"{where}, line {passage.line}",
            at=block.get("updated_at") or block.get("created_at"),
            # An agent wrote it.
            fields={"trust": "low", "tags": [label], "metadata": {"agent": agent_name, "block": label}},
        )


def _read_archive(owner: Mapping[str, Any], agent_name: str, name: str) -> Iterator[SourceItem]:
    for kind in ("passages", "archival_memory", "archival_passages"):
        for number, passage in enumerate(_mappings(owner.get(kind)), 1):
            tags = [str(tag) for tag in passage.get("tags") or ()]
            metadata = passage.get("metadata") or passage.get("metadata_") or {}
            yield SourceRecord(
                id=str(passage.get("id") or f"{agent_name} {kind} {number}"),
                text=str(passage.get("text") or ""),
                where=f"{name}, {kind} {number}",
                at=passage.get("created_at"),
                fields={"trust": "low", "tags": tags, "metadata": {**metadata, "agent": agent_name}},
            )


def _read_messages(agent: Mapping[str, Any], agent_name: str, name: str) -> Iterator[SourceItem]:
    session = f"letta {agent_name}"
    skipped: Counter[str] = Counter()
    for number, message in enumerate(_mappings(agent.get("messages")), 1):
        role, at = message.get("role"), message.get("created_at")
        text = extract_text(message.get("content")) or extract_text(message.get("text"))
        if role not in ("user", "assistant"):
            skipped[f"messages of role {role} are not imported"] += 1
        elif not text:
            skipped["a message without text"] += 1
        else:
            id = f"{agent_name} {message.get('id') or number} {at}"
            yield SourceRecord(id=id, text=text, where=f"{name}, message {number}", at=at, session=session, role=role)
    yield from skipped_counts(f"{name}, agent {agent_name}", skipped)
    yield SourceSession(session=session, title=agent_name)


def _mappings(value: Any) -> list[Mapping[str, Any]]:
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []
