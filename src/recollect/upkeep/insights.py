"""What a model says it sees in memories, read from its answer and held against them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from recollect.model.memory import Category, MemoryRecord
from recollect.models.structured import InvalidAnswer, Partial
from recollect.write.screening.imperatives import imperative_in
from recollect.write.screening.screen import is_refusal
from recollect.write.screening.written import as_written, is_of_secret
from recollect.write.settling.reader import read
from recollect.write.settling.same import SameLimits, Text, compare, likeness, ready, said_again

MAX_CHARS = 500
MAX_ABOUT_CHARS = 60
LEAST_EVIDENCE = 2
# A model's view of someone is never sure.
MAX_CONFIDENCE = 0.8
# Words of weight that the memories do not have, as a share: beyond it, it is not these memories that show it.
_MOST_NEW = 0.7

SCHEMA: Mapping[str, Any] = {
    "title": "insights",
    "type": "object",
    "properties": {
        "insights": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "evidence": {"type": "array", "items": {"type": "integer"}},
                    "content": {"type": "string"},
                    "kind": {"type": "string", "enum": ["insight", "lesson"]},
                    "about": {"type": "string"},
                    "importance": {"type": "number"},
                    "confidence": {"type": "number"},
                },
                "required": ["evidence", "content", "kind", "about", "importance", "confidence"],
                "additionalProperties": False,
            },
        }
    },
    "required": ["insights"],
    "additionalProperties": False,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Insight:
    """Something that several memories show together; `review` says why a person must see it first, if one must."""

    content: str
    category: Category
    evidence: tuple[str, ...]
    about: str
    importance: float
    confidence: float
    review: str = ""


def insights_of(answer: object, memories: Sequence[MemoryRecord]) -> Partial[tuple[Insight, ...]]:
    """The insights of an answer that rest on the memories, and what is wrong with the others."""
    told = answer.get("insights") if isinstance(answer, Mapping) else answer
    if not isinstance(told, list):
        raise InvalidAnswer('it has no list "insights"')
    found: list[Insight] = []
    complaints: list[str] = []
    for at, each in enumerate(told[:100]):
        try:
            found.append(_insight(each, memories))
        except InvalidAnswer as error:
            complaints.append(f"insight {at}: {error}")
    return Partial(tuple(found), tuple(complaints), worth=len(found))


def _insight(told: object, memories: Sequence[MemoryRecord]) -> Insight:
    if not isinstance(told, Mapping):
        raise InvalidAnswer("it must be an object")
    content = as_written(" ".join(str(told.get("content") or "").split()))
    if not content or is_of_secret(content) or len(content) > MAX_CHARS:
        raise InvalidAnswer(f"content must be one sentence of at most {MAX_CHARS} characters")
    cited = _cited(told.get("evidence"), memories)
    if wrong := _wrong_with(content, cited):
        raise InvalidAnswer(wrong)
    order = imperative_in(content)
    return Insight(
        content=content,
        category=Category.LESSON if told.get("kind") == "lesson" else Category.INSIGHT,
        evidence=tuple(each.id for each in cited),
        about=as_written(str(told.get("about") or "").strip())[:MAX_ABOUT_CHARS],
        importance=_share(told.get("importance"), 0.5),
        confidence=min(_share(told.get("confidence"), 0.6), MAX_CONFIDENCE),
        review=f"it tells what to do ('{order}'), and the user did not say it" if order else "",
    )


def _cited(told: object, memories: Sequence[MemoryRecord]) -> list[MemoryRecord]:
    if not isinstance(told, list) or any(isinstance(each, bool) or not isinstance(each, int) for each in told):
        raise InvalidAnswer("evidence must be a list of numbers")
    if wrong := [each for each in told if not 0 <= each < len(memories)]:
        raise InvalidAnswer(f"there is no memory {wrong[0]}")
    numbers = sorted(set(told))
    if len(numbers) < LEAST_EVIDENCE:
        raise InvalidAnswer(f"it must rest on {LEAST_EVIDENCE} memories at least")
    return [memories[each] for each in numbers]


def _wrong_with(content: str, cited: Sequence[MemoryRecord]) -> str:
    if is_refusal(content):
        return "it is a refusal"
    said, sources = read(content), [read(each.content) for each in cited]
    numbers = {number for each in sources for number in each.numbers} | {str(len(cited))}
    if extra := [number for number in said.numbers if number not in numbers]:
        return f"none of its memories has the number {extra[0]}"
    known = {word for each in sources for word in each.order}
    if extra := [name for name in said.names if name not in known]:
        return f"none of its memories has the name {extra[0]}"
    words = {word for each in sources for word in each.words | each.people}
    if not said.words & words or len(said.words - words) > math.ceil(_MOST_NEW * len(said.words)):
        return "its memories do not speak of that"
    if any(said_again(compare(content, each.content), 0.0, limits=SameLimits()) for each in cited):
        return "it only says one of its memories again"
    return ""


def _share(told: object, otherwise: float) -> float:
    if isinstance(told, bool) or not isinstance(told, (int, float)) or not math.isfinite(told):
        return otherwise
    return min(max(float(told), 0.0), 1.0)


@dataclass(frozen=True, slots=True)
class Known:
    """Insights that there are or were, to tell whether another says no more."""

    texts: tuple[Text, ...]
    vectors: tuple[Any, ...]

    def has(self, content: str, vector: Any) -> bool:
        """Whether one of them says the same."""
        said = ready(content)
        for text, other in zip(self.texts, self.vectors, strict=True):
            near = 0.0 if vector is None or other is None else float(vector @ other)
            if said_again(likeness(said, text), near, limits=SameLimits()):
                return True
        return False

    def and_(self, content: str, vector: Any) -> Known:
        """These and one more."""
        return Known((*self.texts, ready(content)), (*self.vectors, vector))
