"""Transcripts of Codex: ~/.codex/sessions, a rollout file for each session."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

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
    """Recognise rollout files by the description of their session."""
    for name in source.files_ending(".jsonl"):
        if b'"session_meta"' in source.head(name):
            return f"{name} begins with session_meta"
    return ""


def read(source: ImportSource) -> Iterator[SourceItem]:
    """Yield the turns of each session."""
    for name in source.files_ending(".jsonl"):
        meta = next((entry["payload"] for _, entry in read_lines(source, name) if _is_meta(entry)), None)
        if not isinstance(meta, Mapping) or not isinstance(meta.get("cwd"), str) or not meta["cwd"]:
            yield from skip_session(name, NO_FOLDER)
        elif isinstance(meta.get("source"), Mapping) and "subagent" in meta["source"]:
            yield from skip_session(name, SUBAGENT)
        else:
            git = meta.get("git")
            branch = git.get("branch") if isinstance(git, Mapping) else ""
            session = AgentSession(
                id=str(meta.get("session_id") or meta.get("id") or name), folder=meta["cwd"], branch=str(branch or "")
            )
            yield from read_session(session, read_lines(source, name))


def _is_meta(entry: Mapping[str, object]) -> bool:
    return entry.get("type") == "session_meta" and "payload" in entry
