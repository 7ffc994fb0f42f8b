"""Transcripts of coding agents as sessions: prompts and final answers, in the project of the recorded folder."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from recollect.aio.erasable_cache import erasable_cache
from recollect.coding.events import MAX_TURN_CHARS
from recollect.coding.transcripts import read_message, turn_key
from recollect.model.text import head_and_tail
from recollect.project import find_project
from recollect.read.strip_context import strip_context
from recollect.transfer.importers.items import SkippedItem, SourceItem, SourceRecord
from recollect.transfer.importers.source import ImportSource

NO_FOLDER = "a session without a recorded working folder"
SUBAGENT = "sessions of subagents are not imported"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSession:
    """A session: its id, its working folder and its branch."""

    id: str
    folder: str
    branch: str = ""


def read_lines(source: ImportSource, name: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the place and the value of each line that is an object; others are ignored, as the clients do."""
    for where, entry in source.json_lines(name):
        if isinstance(entry, Mapping):
            yield where, entry


def read_session(session: AgentSession, entries: Iterable[tuple[str, Mapping[str, Any]]]) -> Iterator[SourceItem]:
    """Yield the prompts of a session, and the last text of the agent after each."""
    project = _project_of(session.folder)
    keys: set[str] = set()

    def emit(record: SourceRecord | None) -> Iterator[SourceItem]:
        # "Go on" need not be stored twice.
        if record is not None and record.id not in keys:
            keys.add(record.id)
            yield record

    answer: SourceRecord | None = None
    for where, entry in entries:
        message = read_message(entry)
        text = strip_context(message[1]).strip() if message is not None else ""
        if message is None or not text:
            continue
        role = message[0]
        record = SourceRecord(
            id=turn_key(role, text),
            text=head_and_tail(text, MAX_TURN_CHARS),
            where=where,
            at=_time_of(entry),
            project=project,
            session=session.id,
            role=role,
            fields={"metadata": {"branch": session.branch}} if session.branch else {},
        )
        if role == "assistant":
            answer = record
            continue
        yield from emit(answer)
        yield from emit(record)
        answer = None
    yield from emit(answer)


@erasable_cache(1024)
def _project_of(folder: str) -> str:
    return find_project(folder, {}).id


def _time_of(entry: Mapping[str, Any]) -> str | None:
    at = entry.get("timestamp")
    return at if isinstance(at, str) else None


def skip_session(name: str, why: str) -> Iterator[SourceItem]:
    """Yield the reason why a session is not imported."""
    yield SkippedItem(name, why)
