"""Recollect as a system under test: turns go in by remember(), questions by search(), nothing in between.

`factory()` gives an object with `index(turns)` and `search(query, k)`; a turn is a mapping with id, text, speaker,
session and timestamp.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from evals.adapter import USER, as_message, best_turns
from evals.conversation import DatasetTurn
from recollect import Memory


class RecollectSystem:
    """One ledger for one conversation, in a folder that goes away with it."""

    def __init__(self) -> None:
        self._home = tempfile.TemporaryDirectory(prefix="recollect-eval-")
        self._memory = Memory(home=self._home.name)
        self._ids: dict[str, Any] = {}

    def index(self, turns: Sequence[Mapping[str, Any]]) -> None:
        """Remember every session, in order."""
        for session, group in groupby(turns, key=lambda turn: turn["session"]):
            if not (dialogue := [turn for turn in group if str(turn["text"]).strip()]):
                continue
            messages = [as_message(_dataset_turn(turn)) for turn in dialogue]
            stored = self._memory.remember(messages, user_id=USER, session_id=str(session), wait=True)
            self._ids |= {own.id: turn["id"] for own, turn in zip(stored, dialogue, strict=True)}

    def search(self, query: str, k: int) -> list[tuple[Any, float]]:
        """The ids of the best turns and their scores."""
        return best_turns(self._memory.search(query, user_id=USER, limit=k), self._ids)[:k]

    def __del__(self) -> None:
        self._memory.close()
        self._home.cleanup()


def _dataset_turn(turn: Mapping[str, Any]) -> DatasetTurn:
    return DatasetTurn(
        id=str(turn["id"]),
        text=str(turn["text"]),
        speaker=str(turn["speaker"]),
        session=str(turn["session"]),
        at=str(turn["timestamp"]),
    )


def factory() -> RecollectSystem:
    """A fresh system for one conversation."""
    return RecollectSystem()
