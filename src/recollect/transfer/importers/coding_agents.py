"""Transcripts of coding agents as sessions: prompts and final answers, in the project of the recorded folder.

- Claude Code, ~/.claude/projects: a file for each session.
- Codex, ~/.codex/sessions: a rollout file for each session, which begins with its description.
- Gemini CLI, ~/.gemini/tmp: the chats of each project, and its folder in .project_root.
- Cursor, ~/.cursor/projects: a folder for each project. The lines have no folder: it is in .workspace-trusted, or
  else in the name of the project, in which hyphens stand for separators, if there is such a folder.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from recollect.aio.erasable_cache import erasable_cache
from recollect.coding.events import MAX_TURN_CHARS
from recollect.coding.transcripts import read_message, turn_key
from recollect.errors import InvalidInput
from recollect.frozen_dataclass import frozen_dataclass
from recollect.model.text import head_and_tail
from recollect.project import find_project
from recollect.read.strip_context import strip_context
from recollect.transfer.importers.items import SkippedItem, SourceItem, SourceRecord
from recollect.transfer.importers.source import ImportSource

_NO_FOLDER = "a session without a recorded working folder"
_SUBAGENT = "sessions of subagents are not imported"
_MAX_PROBES = 2000
# The place and the content of each message.
_Entries: TypeAlias = Iterable[tuple[str, Mapping[str, Any]]]


@frozen_dataclass(kw_only=True)
class AgentSession:
    """A session: its id, its working folder, its branch and its messages; `skip` is why it is not imported."""

    id: str = ""
    folder: str = ""
    branch: str = ""
    entries: _Entries = ()
    skip: str = ""


@frozen_dataclass
class TranscriptImporter:
    """Reads the transcripts of one agent: files with these names, whose beginnings have all `marks`."""

    files: re.Pattern[str]
    marks: tuple[bytes, ...]
    evidence: str
    find: Callable[[ImportSource, re.Match[str]], AgentSession]

    def recognise(self, source: ImportSource) -> str:
        """Return the name and the evidence of a transcript."""
        for name in filter(self.files.fullmatch, source.names):
            if not self.marks or all(mark in source.head(name) for mark in self.marks):
                return f"{name} {self.evidence}"
        return ""

    def read(self, source: ImportSource) -> Iterator[SourceItem]:
        """Yield the turns of each session."""
        for name in source.names:
            if place := self.files.fullmatch(name):
                session = self.find(source, place)
                skip = session.skip or ("" if session.folder else _NO_FOLDER)
                yield from [SkippedItem(name, skip)] if skip else _read_session(session)


def _read_session(session: AgentSession) -> Iterator[SourceItem]:
    """Yield the prompts of a session, and the last text of the agent after each."""
    turns: dict[str, SourceRecord] = {}
    answer: SourceRecord | None = None
    for where, entry in session.entries:
        message = read_message(entry)
        text = strip_context(message[1]).strip() if message is not None else ""
        if message is None or not text:
            continue
        role, at = message[0], entry.get("timestamp")
        record = SourceRecord(
            id=turn_key(role, text),
            text=head_and_tail(text, MAX_TURN_CHARS),
            where=where,
            at=at if isinstance(at, str) else None,
            project=_project_of(session.folder),
            session=session.id,
            role=role,
            fields={"metadata": {"branch": session.branch}} if session.branch else {},
        )
        if role == "assistant":
            answer = record
            continue
        # "Go on" need not be stored twice.
        for each in (answer, record):
            if each is not None:
                turns.setdefault(each.id, each)
        answer = None
    if answer is not None:
        turns.setdefault(answer.id, answer)
    yield from turns.values()


@erasable_cache(1024)
def _project_of(folder: str) -> str:
    return find_project(folder, {}).id


def _lines(source: ImportSource, name: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the lines that are objects; others are ignored, as the clients do."""
    return ((where, entry) for where, entry in source.json_lines(name) if isinstance(entry, Mapping))


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _find_claude_code(source: ImportSource, place: re.Match[str]) -> AgentSession:
    name = place.string
    if "/subagents/" in f"/{name}" or name.rsplit("/", 1)[-1].startswith("agent-"):
        return AgentSession(skip=_SUBAGENT)
    for _, entry in _lines(source, name):
        folder, session = _text(entry.get("cwd")), _text(entry.get("sessionId"))
        if folder and session:
            branch = _text(entry.get("gitBranch"))
            return AgentSession(id=session, folder=folder, branch=branch, entries=_lines(source, name))
    return AgentSession()


def _find_codex(source: ImportSource, place: re.Match[str]) -> AgentSession:
    name = place.string
    metas = (entry.get("payload") for _, entry in _lines(source, name) if entry.get("type") == "session_meta")
    meta = next(filter(None, metas), None)
    if not isinstance(meta, Mapping):
        return AgentSession()
    if isinstance(meta.get("source"), Mapping) and "subagent" in meta["source"]:
        return AgentSession(skip=_SUBAGENT)
    git = meta.get("git")
    return AgentSession(
        id=str(meta.get("session_id") or meta.get("id") or name),
        folder=_text(meta.get("cwd")),
        branch=str(git.get("branch") or "") if isinstance(git, Mapping) else "",
        entries=_lines(source, name),
    )


def _find_gemini(source: ImportSource, place: re.Match[str]) -> AgentSession:
    head, messages = _read_chat(source, place.string)
    root = f"{place[1]}/.project_root" if place[1] else ".project_root"
    if head.get("kind") == "subagent":
        return AgentSession(skip=_SUBAGENT)
    if root not in source.names or not _text(head.get("sessionId")):
        return AgentSession()
    return AgentSession(id=head["sessionId"], folder=source.text(root).strip(), entries=messages)


def _read_chat(source: ImportSource, name: str) -> tuple[dict[str, Any], _Entries]:
    """Return the description of a chat and its messages, without those that were rewound."""
    if name.endswith(".json"):
        document = source.json(name)
        if not isinstance(document, dict):
            raise InvalidInput(f"{name} is not a chat")
        messages = document.get("messages")
        entries = messages if isinstance(messages, list) else []
        return document, [(name, entry) for entry in entries if isinstance(entry, Mapping)]
    head: dict[str, Any] = {}
    by_id: dict[str, tuple[str, Mapping[str, Any]]] = {}
    for where, entry in _lines(source, name):
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


def _find_cursor(source: ImportSource, place: re.Match[str]) -> AgentSession:
    if "/subagents/" in place.string:
        return AgentSession(skip=_SUBAGENT)
    project = place[1] or ""
    trust_file = f"{project}/.workspace-trusted" if project else ".workspace-trusted"
    folder = ""
    if trust_file in source.names:
        try:
            trusted = source.json(trust_file)
        except InvalidInput:
            trusted = None
        folder = _text(trusted.get("workspacePath")) if isinstance(trusted, Mapping) else ""
    folder = folder or _folder_of_slug(project.rsplit("/", 1)[-1])
    return AgentSession(id=place[2], folder=folder, entries=_lines(source, place.string))


def _folder_of_slug(slug: str) -> str:
    """Return the only folder whose path is the name with some hyphens as separators; empty if there is none."""
    paths = [(Path("/"), "")]
    for word in slug.split("-") if slug else ():
        following = []
        for parent, partial in paths[:_MAX_PROBES]:
            name = f"{partial}-{word}" if partial else word
            following.append((parent, name))
            if (parent / name).is_dir():
                following.append((parent / name, ""))
        paths = following
    complete = [parent for parent, partial in paths if not partial] if slug else []
    return str(complete[0]) if len(complete) == 1 else ""


_JSON_LINES = re.compile(r".*\.jsonl", re.IGNORECASE)
TRANSCRIPT_IMPORTERS: Mapping[str, TranscriptImporter] = {
    "claude-code": TranscriptImporter(
        _JSON_LINES, (b'"sessionId"', b'"cwd"'), "has messages with sessionId and cwd", _find_claude_code
    ),
    "codex": TranscriptImporter(_JSON_LINES, (b'"session_meta"',), "begins with session_meta", _find_codex),
    "gemini": TranscriptImporter(
        re.compile(r"(?:(.*)/)?chats/[^/]+\.jsonl?"), (b'"projectHash"',), "has a projectHash", _find_gemini
    ),
    "cursor": TranscriptImporter(
        re.compile(r"(?:(.*)/)?agent-transcripts/(?:.*/)?([^/]+)\.jsonl"), (), "is in agent-transcripts", _find_cursor
    ),
}
