"""Transcripts of Claude Code: ~/.claude/projects, a file for each session."""

from __future__ import annotations

from collections.abc import Iterator

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


def recognise(source: ImportSource) -> str:
    """Recognise lines with a session and a working folder."""
    for name in source.files_ending(".jsonl"):
        head = source.head(name)
        if b'"sessionId"' in head and b'"cwd"' in head:
            return f"{name} has messages with sessionId and cwd"
    return ""


def read(source: ImportSource) -> Iterator[SourceItem]:
    """Yield the turns of each session."""
    for name in source.files_ending(".jsonl"):
        session = _find_session(source, name)
        if session is None:
            yield from skip_session(name, NO_FOLDER)
        elif "/subagents/" in f"/{name}" or name.rsplit("/", 1)[-1].startswith("agent-"):
            yield from skip_session(name, SUBAGENT)
        else:
            yield from read_session(session, read_lines(source, name))


def _find_session(source: ImportSource, name: str) -> AgentSession | None:
    for _, entry in read_lines(source, name):
        folder, session, branch = entry.get("cwd"), entry.get("sessionId"), entry.get("gitBranch")
        if isinstance(folder, str) and isinstance(session, str) and folder and session:
            return AgentSession(id=session, folder=folder, branch=branch if isinstance(branch, str) else "")
    return None
