"""Notes of intended and acknowledged writes, in a file outside the ledger that outlives the writers."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One write of one writer: a verb, the memories it adds, the one it changes."""

    writer: str
    user: str
    verb: str
    ids: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    target: str = ""
    version: int = 0


@dataclass(frozen=True, slots=True)
class ExpectedMemory:
    """The expected state of a memory."""

    text: str
    status: str = "active"
    version: int = 1


@dataclass(slots=True)
class State:
    """All data of one writer in the ledger: memories by id, and turns in order."""

    memories: dict[str, ExpectedMemory] = field(default_factory=dict)
    turns: list[str] = field(default_factory=list)

    def after(self, step: Step) -> State:
        """Return the state after the step."""
        memories, content = dict(self.memories), list(self.turns)
        old = memories.get(step.target)
        if step.verb != "update":
            memories |= {id: ExpectedMemory(text) for id, text in zip(step.ids, step.texts, strict=True)}
        if step.verb == "say":
            content += step.texts
        if old is not None:
            changed = {
                "update": {"text": step.texts[0] if step.texts else ""},
                "supersede": {"status": "superseded"},
                "forget": {"status": "forgotten"},
            }[step.verb]
            memories[step.target] = replace(old, version=old.version + 1, **changed)
        return State(memories, content)


@dataclass(slots=True)
class WriterReport:
    """The steps of one writer that were acknowledged, and the unfinished one."""

    user: str
    acked: list[Step] = field(default_factory=list)
    under_way: Step | None = None

    def state(self, acked: int | None = None) -> State:
        """Return the state after the acknowledged steps, all or the first so many."""
        state = State()
        for step in self.acked[:acked]:
            state = state.after(step)
        return state

    @property
    def possible(self) -> list[State]:
        """Return the allowed states: an unacknowledged write may have happened, completely or not at all."""
        state = self.state()
        return [state] if self.under_way is None else [state, state.after(self.under_way)]


class Notes:
    """A file that is appended to with single writes, so that a kill leaves no partial line."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def intend(self, step: Step) -> None:
        """Note a step before it is taken."""
        os.write(self._file, _line({"intend": asdict(step)}))

    def acked(self, step: Step) -> None:
        """Note that the last step of this writer was acknowledged."""
        os.write(self._file, _line({"acked": step.writer}))

    def close(self) -> None:
        os.close(self._file)


def _line(value: dict[str, object]) -> bytes:
    return json.dumps(value).encode() + b"\n"


def read_notes(path: Path, *, size: int | None = None) -> dict[str, WriterReport]:
    """Return the notes of each writer, from the whole file or its first bytes."""
    if not path.exists():
        return {}
    return reports_by_writer(json.loads(line) for line in path.read_bytes()[:size].splitlines())


def reports_by_writer(lines: Iterable[dict[str, object]]) -> dict[str, WriterReport]:
    """Return the notes of each writer, from their lines."""
    reports: dict[str, WriterReport] = {}
    for line in lines:
        match line:
            case {"intend": {"writer": writer, "user": user, "ids": ids, "texts": texts, **rest}}:
                step = Step(writer=writer, user=user, ids=_texts(ids), texts=_texts(texts), **rest)
                reports.setdefault(writer, WriterReport(user)).under_way = step
            case {"acked": str(writer)}:
                step = reports[writer].under_way
                assert step is not None
                reports[writer].acked.append(step)
                reports[writer].under_way = None
    return reports


def _texts(value: Sequence[str]) -> tuple[str, ...]:
    return tuple(value)
