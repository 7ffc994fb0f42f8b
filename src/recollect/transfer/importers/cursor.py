"""Transcripts of Cursor's agent: ~/.cursor/projects, a folder for each project and in it a file for each session.

The lines have no folder. It is in the project's .workspace-trusted, or else in the name of the project, in which
hyphens stand for separators; the latter is used if there is such a folder.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

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

_TRANSCRIPT = re.compile(r"(?:(.*)/)?agent-transcripts/(?:.*/)?([^/]+)\.jsonl")
_TRUST_FILE = ".workspace-trusted"
_MAX_PROBES = 2000


def recognise(source: ImportSource) -> str:
    """Recognise transcripts by their folder."""
    name = next((name for name in source.names if _TRANSCRIPT.fullmatch(name)), "")
    return f"{name} is in agent-transcripts" if name else ""


def read(source: ImportSource) -> Iterator[SourceItem]:
    """Yield the turns of each session."""
    for name in source.names:
        place = _TRANSCRIPT.fullmatch(name)
        if place is None:
            continue
        folder = _find_folder(source, place[1] or "")
        if "/subagents/" in name:
            yield from skip_session(name, SUBAGENT)
        elif not folder:
            yield from skip_session(name, NO_FOLDER)
        else:
            yield from read_session(AgentSession(id=place[2], folder=folder), read_lines(source, name))


def _find_folder(source: ImportSource, project: str) -> str:
    name = f"{project}/{_TRUST_FILE}" if project else _TRUST_FILE
    if name in source.names:
        try:
            trusted = source.json(name)
        except InvalidInput:
            trusted = None
        path = trusted.get("workspacePath") if isinstance(trusted, Mapping) else None
        if isinstance(path, str) and path:
            return path
    slug = project.rsplit("/", 1)[-1]
    return _folder_of_slug(slug) if slug else ""


def _folder_of_slug(slug: str) -> str:
    """Return the only folder whose path is the name with some hyphens as separators; empty if there is none."""
    words = slug.split("-")
    paths = [(Path("/"), "")]
    for word in words:
        following = []
        for parent, partial in paths[:_MAX_PROBES]:
            name = f"{partial}-{word}" if partial else word
            following.append((parent, name))
            if (parent / name).is_dir():
                following.append((parent / name, ""))
        paths = following
    complete = [parent for parent, partial in paths if not partial]
    return str(complete[0]) if len(complete) == 1 else ""
