"""Recollect as a system under test: turns go in by remember(), questions by search(), nothing in between.

`factory()` gives an object with `index(turns)` and `search(query, k)`; a turn is a mapping with id, text, speaker,
session and timestamp.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import groupby
from typing import Any

from recollect import Memory

_FORMS = ("%Y-%m-%dT%H:%M:%S%z", "%Y/%m/%d (%a) %H:%M", "%I:%M %p on %d %B, %Y", "%d.%m.%Y, %H:%M:%S", "%B-%d-%Y")
USER = "someone"


class RecollectSystem:
    """One ledger for one conversation, in a folder that goes away with it."""

    def __init__(self) -> None:
        self._home = tempfile.TemporaryDirectory(prefix="recollect-eval-")
        self._memory = Memory(home=self._home.name)
        self._ids: dict[str, Any] = {}

    def index(self, turns: Sequence[Mapping[str, Any]]) -> None:
        """Remember every session, in order."""
        for session, group in groupby(turns, key=lambda turn: turn["session"]):
            said = [turn for turn in group if str(turn["text"]).strip()]
            kept = self._memory.remember([_message(turn) for turn in said], user_id=USER, session_id=str(session))
            self._ids |= {own.id: turn["id"] for own, turn in zip(kept, said, strict=True)}

    def search(self, query: str, k: int) -> list[tuple[Any, float]]:
        """The ids of the best turns and their scores."""
        hits = self._memory.search(query, user_id=USER, limit=k)
        return [(self._ids[hit.id], hit.score) for hit in hits]

    def __del__(self) -> None:
        self._memory.close()
        self._home.cleanup()


def _message(turn: Mapping[str, Any]) -> dict[str, Any]:
    speaker = str(turn["speaker"])
    message: dict[str, Any] = {"role": "user", "content": turn["text"]}
    if speaker in ("user", "assistant"):
        message["role"] = speaker
    else:
        message |= {"name": speaker}
    said_at = _time(str(turn["timestamp"]))
    return message if said_at is None else message | {"timestamp": said_at}


def _time(text: str) -> datetime | None:
    for form in _FORMS:
        try:
            at = datetime.strptime(text.strip(), form)
        except ValueError:
            continue
        return at if at.tzinfo else at.replace(tzinfo=UTC)
    return None


def factory() -> RecollectSystem:
    """A fresh system for one conversation."""
    return RecollectSystem()
