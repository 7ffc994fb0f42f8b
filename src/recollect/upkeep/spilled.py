"""What was said while the ledger was away, in files beside it: how they are written, read, and made to forget.

A file holds a line of JSON for each turn. The process that adds to it holds its lock; one that nobody holds was left
behind, and whoever finds it takes it over. A line that is erased is overwritten in its place with spaces, also in
files that others hold: they only ever add to the end.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from pathlib import Path
from typing import Any

from recollect.errors import InvalidInput
from recollect.model.erase import Cleared, Erase, Target
from recollect.model.scope import Scope
from recollect.model.times import as_utc
from recollect.model.turn import Turn

_log = logging.getLogger("recollect")
ENDING = ".jsonl"
# Lines that the ledger refused: kept for a person to look at, never tried again.
REFUSED = ".refused"


@dataclass(frozen=True, slots=True)
class Spilled:
    """A turn that waits for the ledger, as the message it was, and when it was first given."""

    scope: Scope
    message: Mapping[str, Any]
    given_at: datetime

    @classmethod
    def of(cls, turn: Turn, given_at: datetime) -> Spilled:
        """A turn as the message that `listen` makes it from again."""
        message = {"role": str(turn.role), "content": turn.content, "timestamp": turn.said_at.isoformat()}
        named = {"name": turn.name} if turn.name else {}
        return cls(turn.scope, {**message, **named, "turn_id": turn.id}, given_at)

    def to_line(self) -> bytes:
        """The line that stands for it."""
        plain = {
            "user": self.scope.user,
            "project": self.scope.project,
            "session": self.scope.session,
            "given_at": self.given_at.isoformat(),
            "message": dict(self.message),
        }
        return json.dumps(plain, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


@dataclass(frozen=True, slots=True)
class Line:
    """A turn that waits, and where in its file."""

    start: int
    length: int
    spilled: Spilled


def files(folder: Path, *endings: str) -> list[Path]:
    """The files of a folder, oldest first: their names begin with the time they were made."""
    try:
        return sorted(path for path in folder.iterdir() if path.suffix in (endings or (ENDING,)))
    except FileNotFoundError:
        return []


def lines_of(path: Path) -> Iterator[Line]:
    """What waits in a file; a line that was cut off was never acknowledged, and is passed over."""
    start = 0
    with path.open("rb") as file:
        for raw in file:
            at, start = start, start + len(raw)
            if not raw.strip(b" \n\0"):
                continue
            try:
                if not raw.endswith(b"\n"):
                    raise InvalidInput("it has no end")
                yield Line(at, len(raw), _read(raw))
            except (ValueError, KeyError, TypeError, InvalidInput) as error:
                _log.warning("%s: a line of %d bytes is cut off and passed over (%s)", path, len(raw), error)


def _read(raw: bytes) -> Spilled:
    plain = json.loads(raw)
    scope = Scope(plain["user"], plain["project"], plain["session"])
    return Spilled(scope, dict(plain["message"]), as_utc(plain["given_at"], name="given_at"))


def as_given(spilled: Iterable[Spilled]) -> Iterator[tuple[Scope, datetime, list[Mapping[str, Any]]]]:
    """Turns put together again that were given together."""
    for (scope, given_at), run in groupby(spilled, key=lambda each: (each.scope, each.given_at)):
        yield scope, given_at, [each.message for each in run]


def of_user(folder: Path, user: str) -> list[Spilled]:
    """What waits of one user, in order."""
    return [line.spilled for path in files(folder) for line in _still_there(path) if line.spilled.scope.user == user]


def erase(folder: Path, scope: Scope, what: Erase) -> Cleared:
    """Overwrite what an erasure reaches, in all files of a folder."""
    count, note = 0, ""
    for path in files(folder, ENDING, REFUSED):
        try:
            count += _blank(path, lambda spilled: _is_reached(spilled, scope, what))
        except OSError as error:
            note = f"{path} could not be overwritten: {error.strerror}"
    return Cleared("spill journal", {"turns": count}, not note, note)


def _is_reached(spilled: Spilled, scope: Scope, what: Erase) -> bool:
    theirs = spilled.scope
    if theirs.user != scope.user:
        return False
    match what.target:
        case Target.USER:
            return True
        case Target.PROJECT:
            return theirs.project == scope.project
        case Target.SESSION:
            return theirs == scope
        case Target.TURN | Target.MEMORY:
            return spilled.message.get("turn_id") == what.id


def _blank(path: Path, is_reached: Callable[[Spilled], bool]) -> int:
    found = [line for line in _still_there(path) if is_reached(line.spilled)]
    if not found:
        return 0
    try:
        file = os.open(path, os.O_WRONLY)
    except FileNotFoundError:
        return 0
    try:
        for line in found:
            os.pwrite(file, b" " * (line.length - 1), line.start)
        os.fsync(file)
    finally:
        os.close(file)
    return len(found)


def _still_there(path: Path) -> list[Line]:
    try:
        return list(lines_of(path))
    except FileNotFoundError:
        # Someone brought it to the ledger meanwhile.
        return []
