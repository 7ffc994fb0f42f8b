"""Spill files: turns that were received while the ledger was unavailable.

A file has a line of JSON for each turn. The process that appends to it locks it; an unlocked file is from a process
that ended, and another one replays it. An erased line is overwritten with spaces, also in locked files: they are only
appended to.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from itertools import groupby
from pathlib import Path
from typing import Any

from recollect.errors import InvalidInput
from recollect.frozen_dataclass import frozen_dataclass
from recollect.model.erasure import ErasureRequest, StoreErasure, Target
from recollect.model.scope import Scope
from recollect.model.times import as_utc
from recollect.model.turn import Turn

_log = logging.getLogger("recollect")
SPILL_SUFFIX = ".jsonl"
# Lines that the ledger refused; they are never retried.
REJECTED_SUFFIX = ".refused"


@frozen_dataclass
class SpilledTurn:
    """A turn that waits for the ledger, as a message, the time of its arrival, and how to learn from it.

    `model` is that of its chat, `mode` that of the extraction if the chat named one.
    """

    scope: Scope
    message: Mapping[str, Any]
    received_at: datetime
    model: str = ""
    mode: str | None = None

    @classmethod
    def from_turn(cls, turn: Turn, received_at: datetime, *, model: str = "", mode: str | None = None) -> SpilledTurn:
        """Return a turn as the message that `parse_messages` accepts."""
        message = {"role": str(turn.role), "content": turn.content, "timestamp": turn.said_at.isoformat()}
        named = {"name": turn.name} if turn.name else {}
        return cls(turn.scope, {**message, **named, "turn_id": turn.id}, received_at, model, mode)

    def to_line(self) -> bytes:
        """Return the line of the file."""
        plain = {
            "user": self.scope.user,
            "project": self.scope.project,
            "session": self.scope.session,
            "given_at": self.received_at.isoformat(),
            "message": dict(self.message),
        }
        plain |= {name: value for name, value in (("model", self.model), ("mode", self.mode)) if value}
        return json.dumps(plain, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


@frozen_dataclass
class SpilledLine:
    """A turn, and its position in the file."""

    start: int
    length: int
    turn: SpilledTurn


def list_spill_files(folder: Path, *endings: str) -> list[Path]:
    """Return the files of a folder, oldest first: their names begin with the time."""
    try:
        return sorted(path for path in folder.iterdir() if path.suffix in (endings or (SPILL_SUFFIX,)))
    except FileNotFoundError:
        return []


def read_spilled_lines(path: Path) -> Iterator[SpilledLine]:
    """Yield the turns of a file; skip a line that was cut off, which was never acknowledged."""
    start = 0
    with path.open("rb") as file:
        for raw in file:
            at, start = start, start + len(raw)
            if not raw.strip(b" \n\0"):
                continue
            try:
                if not raw.endswith(b"\n"):
                    raise InvalidInput("no line end")
                yield SpilledLine(at, len(raw), _parse_line(raw))
            except (ValueError, KeyError, TypeError, InvalidInput) as error:
                _log.warning("%s: skipped an invalid line of %d bytes (%s)", path, len(raw), error)


def _parse_line(raw: bytes) -> SpilledTurn:
    plain = json.loads(raw)
    scope = Scope(plain["user"], plain["project"], plain["session"])
    received_at = as_utc(plain["given_at"], name="given_at")
    return SpilledTurn(scope, dict(plain["message"]), received_at, str(plain.get("model", "")), plain.get("mode"))


def group_by_arrival(turns: Iterable[SpilledTurn]) -> Iterator[list[SpilledTurn]]:
    """Yield the turns that were received together."""
    for _, group in groupby(turns, key=lambda each: (each.scope, each.received_at, each.model, each.mode)):
        yield list(group)


def group_by_learning(turns: Iterable[SpilledTurn]) -> Iterator[list[SpilledTurn]]:
    """Yield consecutive turns that are learned from in the same way."""
    for _, group in groupby(turns, key=lambda each: (each.model, each.mode)):
        yield list(group)


def spilled_turns_of(folder: Path, user: str) -> list[SpilledTurn]:
    """Return the turns of one user, in order."""
    return [
        line.turn
        for path in list_spill_files(folder)
        for line in _lines_if_exists(path)
        if line.turn.scope.user == user
    ]


def erase_spilled(folder: Path, scope: Scope, what: ErasureRequest) -> StoreErasure:
    """Overwrite the turns that an erasure covers, in all files of a folder."""
    count, note = 0, ""
    for path in list_spill_files(folder, SPILL_SUFFIX, REJECTED_SUFFIX):
        try:
            count += _overwrite(path, lambda spilled: _is_reached(spilled, scope, what))
        except OSError as error:
            note = f"{path} could not be overwritten: {error.strerror}"
    return StoreErasure("spill journal", {"turns": count}, not note, note)


def _is_reached(turn: SpilledTurn, scope: Scope, what: ErasureRequest) -> bool:
    turn_scope = turn.scope
    if turn_scope.user != scope.user:
        return False
    match what.target:
        case Target.USER:
            return True
        case Target.PROJECT:
            return turn_scope.project == scope.project
        case Target.SESSION:
            return turn_scope == scope
        case Target.TURN | Target.MEMORY:
            return turn.message.get("turn_id") == what.id


def _overwrite(path: Path, is_reached: Callable[[SpilledTurn], bool]) -> int:
    lines = [line for line in _lines_if_exists(path) if is_reached(line.turn)]
    if not lines:
        return 0
    try:
        file = os.open(path, os.O_WRONLY)
    except FileNotFoundError:
        return 0
    try:
        for line in lines:
            os.pwrite(file, b" " * (line.length - 1), line.start)
        os.fsync(file)
    finally:
        os.close(file)
    return len(lines)


def _lines_if_exists(path: Path) -> list[SpilledLine]:
    try:
        return list(read_spilled_lines(path))
    except FileNotFoundError:
        # Another process has replayed it.
        return []
