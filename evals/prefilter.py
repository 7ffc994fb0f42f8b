"""Whether recall searches when it should, and leaves it when it need not."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evals.files import read_text
from recollect.errors import InvalidInput

SHAPE = 'JSON Lines such as {"text": "Where did I park?", "search": 1, "source": "mine"}; source may be left out'


@dataclass(frozen=True, slots=True)
class LabeledMessage:
    """A message, and whether memory should be searched for it."""

    text: str
    search: bool
    source: str


@dataclass(frozen=True, slots=True)
class Decided:
    """What was decided about a message, and why."""

    message: LabeledMessage
    search: bool
    reason: str

    @property
    def right(self) -> bool:
        return self.search == self.message.search


def read_messages(path: Path) -> list[LabeledMessage]:
    """The messages of a file, or an InvalidInput that names the line."""
    messages = list(_messages(path))
    if not messages:
        raise InvalidInput(f"{path} is empty; it should be {SHAPE}")
    return messages


def _messages(path: Path) -> Iterator[LabeledMessage]:
    # Not splitlines: a JSON text may hold separators of lines that end no line of the file.
    for number, line in enumerate(read_text(path, shape=SHAPE).split("\n"), 1):
        if not line.strip():
            continue
        try:
            fields = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InvalidInput(f"{path}, line {number} is not JSON: {error}; it should be {SHAPE}") from None
        if not isinstance(fields, dict) or not isinstance(fields.get("text"), str) or not fields["text"].strip():
            raise InvalidInput(f"{path}, line {number} has no text; it should be {SHAPE}")
        if fields.get("search") not in (0, 1):
            raise InvalidInput(f"{path}, line {number}: search is 0 or 1; it should be {SHAPE}")
        yield LabeledMessage(fields["text"], bool(fields["search"]), str(fields.get("source") or "all"))


def decide_all(messages: Sequence[LabeledMessage]) -> list[Decided]:
    """What recall decides about each message."""
    from recollect.read.decide import decide

    decided = []
    for message in messages:
        decision = decide(message.text)
        decided.append(Decided(message, bool(decision.search), str(decision.reason)))
    return decided


def prefilter_document(decided: Sequence[Decided], *, file: str) -> dict[str, Any]:
    """The shares, overall and by source, and every mistake."""
    sources = sorted({(not each.message.search, each.message.source) for each in decided})
    return {
        "file": file,
        "n": len(decided),
        "memory": _share([each for each in decided if each.message.search]),
        "other": _share([each for each in decided if not each.message.search]),
        "sources": [
            {"source": source, "search": not other, **_share(_of(decided, source, search=not other))}
            for other, source in sources
        ],
        "mistakes": [
            {
                "text": each.message.text,
                "source": each.message.source,
                "should": _verb(each.message.search),
                "did": _verb(each.search),
                "reason": each.reason,
            }
            for each in decided
            if not each.right
        ],
    }


def _of(decided: Sequence[Decided], source: str, *, search: bool) -> list[Decided]:
    return [each for each in decided if each.message.source == source and each.message.search is search]


def _share(decided: Sequence[Decided]) -> dict[str, Any]:
    """How many were decided rightly, and which share that is; None of nothing."""
    right = sum(each.right for each in decided)
    return {"n": len(decided), "right": right, "share": round(right / len(decided), 6) if decided else None}


def _verb(search: bool) -> str:
    return "search" if search else "skip"
