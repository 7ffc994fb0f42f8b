"""Recollect under test: a conversation goes in by remember, questions by search, nothing in between."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import groupby
from time import perf_counter
from typing import TYPE_CHECKING, Any

from evals.conversation import DatasetTurn
from recollect.model.memory import Category

if TYPE_CHECKING:
    from recollect.client import AsyncMemory
    from recollect.model.result import Hit


USER = "someone"
_FORMS = ("%Y-%m-%dT%H:%M:%S%z", "%Y/%m/%d (%a) %H:%M", "%I:%M %p on %d %B, %Y", "%d.%m.%Y, %H:%M:%S", "%B-%d-%Y")


class MemoryAdapter:
    """One conversation in a memory of its own; `notes` counts what searches had to do without."""

    def __init__(self, memory: AsyncMemory) -> None:
        self._memory = memory
        self._turns: dict[str, str] = {}
        self.notes: Counter[str] = Counter()

    async def remember(
        self, turns: Sequence[DatasetTurn], on_progress: Callable[[int], None] = lambda turns: None
    ) -> float:
        """Keep every session, in order, telling `kept` how many turns each has; gives the seconds it took."""
        taken = 0.0
        for session, group in groupby(turns, key=lambda turn: turn.session):
            session_turns = list(group)
            if not (spoken := [turn for turn in session_turns if turn.text.strip()]):
                continue
            messages = [as_message(turn) for turn in spoken]
            began = perf_counter()
            own = await self._memory.remember(messages, user_id=USER, session_id=session, wait=True)
            taken += perf_counter() - began
            self._turns |= {mine.id: turn.id for mine, turn in zip(own, spoken, strict=True)}
            on_progress(len(session_turns))
        return taken

    async def search(self, query: str, limit: int) -> tuple[list[tuple[str, float]], float]:
        """The turns that were found with their scores, best first; and how many seconds that took."""
        began = perf_counter()
        result = await self._memory.search(query, user_id=USER, limit=limit)
        taken = perf_counter() - began
        self.notes.update(result.notes)
        return best_turns(result, self._turns)[:limit], taken


def best_turns(hits: Iterable[Hit], turns: Mapping[str, Any]) -> list[tuple[Any, float]]:
    """Which turns the hits stand for, each once; what was learned stands for the turns it was learned from.

    What sums up many turns stands for none of them in particular.
    """
    best: dict[Any, float] = {}
    for hit in hits:
        if hit.record.category in (Category.EPISODE, Category.SUMMARY):
            continue
        # What was said last comes first: it is what holds.
        for id in (hit.id, *reversed(hit.record.evidence)):
            if id in turns:
                best.setdefault(turns[id], hit.score)
    return list(best.items())


def as_message(turn: DatasetTurn) -> dict[str, Any]:
    """The turn as a chat message; a speaker who is neither user nor assistant is a user with a name."""
    message: dict[str, Any] = {"role": "user", "content": turn.text}
    if turn.speaker in ("user", "assistant"):
        message["role"] = turn.speaker
    else:
        message["name"] = turn.speaker
    said_at = read_time(turn.at)
    return message if said_at is None else message | {"timestamp": said_at}


def read_time(text: str) -> datetime | None:
    """The time in any of the forms such files use; None for what is in none of them."""
    for form in _FORMS:
        try:
            at = datetime.strptime(text.strip(), form)
        except ValueError:
            continue
        return at if at.tzinfo else at.replace(tzinfo=UTC)
    return None
