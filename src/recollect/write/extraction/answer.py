"""The shape in which a model answers what it learned, and how its answer is read: strictly asked, leniently taken."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from recollect.model.invisible import normalise_invisible
from recollect.model.memory import Category, MemoryType
from recollect.model.text import mended_text
from recollect.models.structured import InvalidAnswer, Partial

# More than this is no answer to a conversation; the rest is not even looked at.
MAX_CLAIMS = 1_000
MAX_CONTENT_CHARS = 2_000
MAX_KEY_CHARS = 64
MAX_VALUE_CHARS = 500

_CATEGORIES = ("identity", "preference", "constraint", "instruction", "fact", "event", "insight")
_TYPES = ("semantic", "procedural", "episodic")
_NUMBER = {"type": "number"}
_TEXT_OR_NULL = {"type": ["string", "null"]}
_FIELDS: Mapping[str, Any] = {
    # First the evidence, then the words: what a model writes first guides what it writes next.
    "turns": {"type": "array", "items": {"type": "integer"}},
    "content": {"type": "string"},
    "by": {"type": "string", "enum": ["user", "assistant"]},
    "type": {"type": "string", "enum": list(_TYPES)},
    "category": {"type": "string", "enum": list(_CATEGORIES)},
    "key": _TEXT_OR_NULL,
    "value": _TEXT_OR_NULL,
    "importance": _NUMBER,
    "confidence": _NUMBER,
    "when": _TEXT_OR_NULL,
    "change": {"type": "string", "enum": ["new", "correction", "ended"]},
}
SCHEMA: Mapping[str, Any] = {
    "title": "memories",
    "type": "object",
    "properties": {
        "memories": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": _FIELDS,
                "required": list(_FIELDS),
                "additionalProperties": False,
            },
        }
    },
    "required": ["memories"],
    "additionalProperties": False,
}

# What models call things when nobody holds them to the schema.
_LISTS = ("memories", "facts", "items", "results", "data")
_CONTENTS = ("content", "memory", "fact", "text", "statement")
_TURNS = ("turns", "turn", "evidence", "sources", "source")
_LEVELS = {"trivial": 0.1, "low": 0.3, "medium": 0.5, "moderate": 0.5, "high": 0.8, "critical": 1.0, "vital": 1.0}
_ENDED = ("ended", "end", "retraction", "retracted", "delete", "removed")
_NO_KEY = re.compile(r"[\W_]+")
_INTEGER = re.compile(r"\d{1,9}")
_NOTHING = ("null", "none", "n/a", "unknown")


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One thing the model says it learned, of the right types; whether it is true to the talk is not yet known."""

    content: str
    turns: tuple[int, ...] = ()
    by_assistant: bool = False
    type: MemoryType | None = None
    category: Category = Category.FACT
    key: str = ""
    value: str = ""
    importance: float = 0.5
    confidence: float = 0.8
    when: str = ""
    change: str = "new"


def claims_of(answer: object) -> Partial[tuple[Claim, ...]]:
    """The claims of an answer, and what is wrong with those that are none; InvalidAnswer if there is no list."""
    listed = _listed(answer)
    claims: list[Claim] = []
    complaints: list[str] = []
    for at, item in enumerate(listed[:MAX_CLAIMS]):
        claim = _claim(item)
        if claim is None:
            complaints.append(f"memories[{at}] has no content, or none that is a sentence or two")
        else:
            claims.append(claim)
    if complaints and not claims:
        raise InvalidAnswer(complaints[0])
    return Partial(tuple(claims), tuple(complaints), worth=len(claims))


def _listed(answer: object) -> list[Any]:
    if isinstance(answer, Mapping):
        for name in _LISTS:
            held = answer.get(name)
            if isinstance(held, list):
                return held
            if isinstance(held, Mapping):
                return [held]
        if not answer:
            return []
        if _content(answer):
            return [answer]
    elif isinstance(answer, list):
        return answer
    raise InvalidAnswer('it is not an object with the list "memories"')


def _claim(item: object) -> Claim | None:
    if isinstance(item, str):
        item = {"content": item}
    if not isinstance(item, Mapping):
        return None
    content = _content(item)
    # Half of a long text could say the opposite of it: it is not cut.
    if len(content) > MAX_CONTENT_CHARS or not any(char.isalnum() for char in content):
        return None
    type_, category = _kind(item)
    key, value = _key(item.get("key")), _text(item.get("value"))[:MAX_VALUE_CHARS]
    return Claim(
        content=content,
        turns=_turns(item),
        by_assistant=_text(item.get("by") or item.get("speaker")).casefold() in ("assistant", "ai", "model"),
        type=type_,
        category=category,
        key=key if value else "",
        value=value if key else "",
        importance=_share(item.get("importance"), 0.5),
        confidence=_share(item.get("confidence"), 0.8),
        when=_text(item.get("when") or item.get("date"))[:40],
        change=_change(item),
    )


def _content(item: Mapping[Any, Any]) -> str:
    content = next((text for name in _CONTENTS if (text := _text(item.get(name)))), "")
    key, value = _text(item.get("key")), _text(item.get("value"))
    return content or (f"{key}: {value}" if key and value else "")


def _text(value: object) -> str:
    """The words on one line; nothing for what is no text, or a word for nothing."""
    text = " ".join(normalise_invisible(mended_text(value)).split()) if isinstance(value, str) else ""
    return "" if text.casefold() in _NOTHING else text


def _kind(item: Mapping[Any, Any]) -> tuple[MemoryType | None, Category]:
    """Type and category; a model that knows only one field for both may name either in either."""
    type_: MemoryType | None = None
    category: Category | None = None
    for name in ("category", "type"):
        said = _text(item.get(name)).casefold()
        if said in _TYPES:
            type_ = type_ or MemoryType(said)
        elif said in _CATEGORIES:
            category = category or Category(said)
    if category is None:
        category = Category.EVENT if type_ is MemoryType.EPISODIC else Category.FACT
    return type_, category


def _key(value: object) -> str:
    return _NO_KEY.sub("_", _text(value).casefold())[:MAX_KEY_CHARS].strip("_")


def _turns(item: Mapping[Any, Any]) -> tuple[int, ...]:
    """The numbers of the lines it rests on, in order; what is no number is left out."""
    given = next((item[name] for name in _TURNS if item.get(name) is not None), ())
    numbers: set[int] = set()
    for each in given if isinstance(given, list) else [given]:
        if type(each) is int:
            numbers.add(each)
        elif isinstance(each, str):
            numbers.update(int(digits) for digits in _INTEGER.findall(each[:100]))
    return tuple(sorted(numbers))


def _share(value: object, otherwise: float) -> float:
    """A number from 0 to 1, also where a model counts to 10 or to 100 or says it in a word."""
    if isinstance(value, str):
        value = _LEVELS.get(value.strip().casefold(), value)
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return otherwise
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return otherwise
    if not 0 <= number <= 100:
        return otherwise
    return number if number <= 1 else number / 10 if number <= 10 else number / 100


def _change(item: Mapping[Any, Any]) -> str:
    said = _text(item.get("change")).casefold()
    if said.startswith("correct") or item.get("correction") is True:
        return "correction"
    return "ended" if said in _ENDED or item.get("retraction") is True else "new"
