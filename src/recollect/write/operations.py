"""Operations on memories as an LLM writes them: the JSON schema, a lenient parser, and the rows of a prompt.

The parser also accepts a bare list of facts, ADD/UPDATE/DELETE/NONE events, and keyed facts without a sentence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from datetime import datetime
from enum import StrEnum
from typing import Any

from recollect.frozen_dataclass import frozen_dataclass
from recollect.lazy_pattern import lazy_pattern
from recollect.model.memory import TYPE_OF_CATEGORY, Category, MemoryRecord, MemoryType, Trust
from recollect.model.text import normalise_invisible, repair_text
from recollect.model.turn import Turn
from recollect.models.structured import InvalidAnswer, Partial
from recollect.prompts.rendering import json_line, shorten


class FactOp(StrEnum):
    """The operation of an extracted fact: add a memory, replace one, or end one."""

    ADD = "add"
    UPDATE = "update"
    END = "end"


@frozen_dataclass(kw_only=True)
class ExtractedFact:
    """One self-contained statement, its operation, and its reliability.

    `target` is the memory that an update replaces or an end closes. `evidence` are the ids of the turns it comes
    from, `said_at` the time of the last one. A `correction` replaces the value of its key even if the old one is more
    confident. `doubts` are failed checks, which are recorded on the memory. A fact with a reason for `review` waits
    for a person. `model` is the LLM that stated it, if one did. `metadata` is what the metadata of its turns have in
    common.
    """

    content: str
    op: FactOp = FactOp.ADD
    target: MemoryRecord | None = None
    category: Category = Category.FACT
    type: MemoryType | None = None
    key: str | None = None
    value: str | None = None
    importance: float = 0.5
    confidence: float = 0.8
    said_at: datetime | None = None
    occurred_at: datetime | None = None
    trust: Trust = Trust.HIGH
    evidence: tuple[str, ...] = ()
    correction: bool = False
    doubts: tuple[str, ...] = ()
    review: str = ""
    source: str = ""
    model: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def memory_type(self) -> MemoryType:
        """The type, or the usual type of the category."""
        return self.type or TYPE_OF_CATEGORY.get(self.category, MemoryType.SEMANTIC)


MAX_OPERATIONS = 1_000
MAX_CONTENT_CHARS = 2_000
MAX_KEY_CHARS = 64
MAX_VALUE_CHARS = 500

_CATEGORIES = ("identity", "preference", "constraint", "instruction", "fact", "event", "insight")
_TYPES = ("semantic", "procedural", "episodic")
_TEXT_OR_NULL = {"type": ["string", "null"]}
_FIELDS: Mapping[str, Any] = {
    "op": {"type": "string", "enum": [str(op) for op in FactOp]},
    "memory": {"type": ["integer", "null"]},
    # Evidence precedes content: what a model writes first guides what it writes next.
    "lines": {"type": "array", "items": {"type": "integer"}},
    "content": {"type": "string"},
    "type": {"type": "string", "enum": list(_TYPES)},
    "category": {"type": "string", "enum": list(_CATEGORIES)},
    "key": _TEXT_OR_NULL,
    "value": _TEXT_OR_NULL,
    "importance": {"type": "number"},
    "confidence": {"type": "number"},
    "when": _TEXT_OR_NULL,
}
SCHEMA: Mapping[str, Any] = {
    "title": "operations",
    "type": "object",
    "properties": {
        "operations": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": _FIELDS,
                "required": list(_FIELDS),
                "additionalProperties": False,
            },
        }
    },
    "required": ["operations"],
    "additionalProperties": False,
}

# Other names that models use for the same fields.
_LISTS = ("operations", "memories", "facts", "memory", "decisions", "items", "results", "data")
_CONTENTS = ("content", "text", "fact", "statement", "memory", "says")
_LINES = ("lines", "line", "turns", "turn", "evidence", "sources", "source")
_OPS = {
    "add": FactOp.ADD, "new": FactOp.ADD, "create": FactOp.ADD,
    "update": FactOp.UPDATE, "correction": FactOp.UPDATE, "replace": FactOp.UPDATE, "merge": FactOp.UPDATE,
    "end": FactOp.END, "ended": FactOp.END, "delete": FactOp.END, "remove": FactOp.END, "retract": FactOp.END,
}  # fmt: skip
_LEVELS = {"trivial": 0.1, "low": 0.3, "medium": 0.5, "moderate": 0.5, "high": 0.8, "critical": 1.0, "vital": 1.0}
_NON_WORD = lazy_pattern(r"[\W_]+")
_INTEGER = lazy_pattern(r"\d{1,9}")
_EMPTY_WORDS = ("null", "none", "n/a", "unknown")


@frozen_dataclass(kw_only=True)
class Operation:
    """One operation of an answer; `memory` and `lines` are numbers in the prompt, `op` is None for a NONE."""

    op: FactOp | None
    content: str
    memory: int | None = None
    lines: tuple[int, ...] = ()
    type: MemoryType | None = None
    category: Category = Category.FACT
    key: str = ""
    value: str = ""
    importance: float = 0.5
    confidence: float = 0.8
    when: str = ""
    by_assistant: bool = False
    correction: bool = False


@frozen_dataclass
class OperationParser:
    """Parses answers to a prompt with the given numbers of lines and memories, which are numbered from 1."""

    line_count: int
    memory_count: int
    default_importance: float = 0.5

    def parse(self, answer: object) -> Partial[tuple[Operation, ...]]:
        """Return the operations and complaints about invalid ones; raise InvalidAnswer if there is no list of them.

        An operation that cites an unknown line or memory is returned with a complaint: the model is asked once more,
        and if the second answer is no better, the operation adds a new memory.
        """
        operations: list[Operation] = []
        complaints: list[str] = []
        for at, item in enumerate(_operation_items(answer)[:MAX_OPERATIONS]):
            operation = _parse_operation(item, self.default_importance)
            if operation is None:
                complaints.append(f"operations[{at}] has no content, or more than a sentence or two")
                continue
            complaints += [f"operations[{at}]: {wrong}" for wrong in self._unknown_references(operation)]
            operations.append(operation)
        if complaints and not operations:
            raise InvalidAnswer(complaints[0])
        return Partial(tuple(operations), tuple(complaints), score=len(operations))

    def _unknown_references(self, operation: Operation) -> list[str]:
        wrong = [f"there is no line {line}" for line in operation.lines if not 1 <= line <= self.line_count]
        memory = operation.memory
        if (
            operation.op in (FactOp.UPDATE, FactOp.END)
            and memory is not None
            and not 1 <= memory <= self.memory_count
        ):
            wrong.append(f"there is no memory {memory}")
        if operation.op is FactOp.UPDATE and memory is None:
            wrong.append("an update needs the number of a memory")
        return wrong


def _operation_items(answer: object) -> list[Any]:
    if isinstance(answer, Mapping):
        for name in _LISTS:
            value = answer.get(name)
            if isinstance(value, list):
                return value
            if isinstance(value, Mapping):
                return [value]
        if not answer:
            return []
        if _content(answer):
            return [answer]
    elif isinstance(answer, list):
        return answer
    raise InvalidAnswer('it is not an object with the list "operations"')


def _parse_operation(item: object, default_importance: float) -> Operation | None:
    if isinstance(item, str):
        item = {"content": item}
    if not isinstance(item, Mapping):
        return None
    op = _parse_op(item)
    content = _content(item)
    has_words = any(char.isalnum() for char in content)
    # A long text is not shortened, since half of it could say the opposite. An end or a NONE may have no words.
    if len(content) > MAX_CONTENT_CHARS or (not has_words and op not in (FactOp.END, None)):
        return None
    type_, category = _parse_kind(item)
    key, value = _key(item.get("key")), _text(item.get("value"))[:MAX_VALUE_CHARS]
    return Operation(
        op=op,
        content=content if has_words else "",
        memory=_memory_number(item),
        lines=_line_numbers(item),
        type=type_,
        category=category,
        key=key if value else "",
        value=value if key else "",
        importance=_unit_number(item.get("importance"), default_importance),
        confidence=_unit_number(item.get("confidence"), 0.8),
        when=_text(item.get("when") or item.get("date"))[:40],
        by_assistant=_text(item.get("by") or item.get("speaker")).casefold() in ("assistant", "ai", "model"),
        correction=_text(item.get("change")).casefold().startswith("correct") or item.get("correction") is True,
    )


def _parse_op(item: Mapping[Any, Any]) -> FactOp | None:
    """Return the operation, by any of the names models give it; NONE and NOOP are None."""
    for name in ("op", "event", "action", "operation", "change"):
        label = _text(item.get(name)).casefold() or str(item.get(name) or "").strip().casefold()
        if label in ("none", "noop", "no_change", "unchanged", "known"):
            return None
        if label in _OPS:
            op = _OPS[label]
            # An answer without numbers of memories cannot update one.
            return FactOp.ADD if op is FactOp.UPDATE and name == "change" else op
    return FactOp.ADD


def _content(item: Mapping[Any, Any]) -> str:
    texts = (text for name in _CONTENTS if (text := _text(item.get(name))))
    # "memory" may be the number of one, written as text.
    content = next((text for text in texts if not text.isdecimal()), "")
    key, value = _text(item.get("key")), _text(item.get("value"))
    return content or (f"{key}: {value}" if key and value else "")


def _text(value: object) -> str:
    """Return a text on one line; empty for other types and for words such as "none"."""
    text = " ".join(normalise_invisible(repair_text(value)).split()) if isinstance(value, str) else ""
    return "" if text.casefold() in _EMPTY_WORDS else text


def _parse_kind(item: Mapping[Any, Any]) -> tuple[MemoryType | None, Category]:
    """Return type and category; models confuse the two fields, so either may name either."""
    type_: MemoryType | None = None
    category: Category | None = None
    for name in ("category", "type"):
        label = _text(item.get(name)).casefold()
        if label in _TYPES:
            type_ = type_ or MemoryType(label)
        elif label in _CATEGORIES:
            category = category or Category(label)
    if category is None:
        category = Category.EVENT if type_ is MemoryType.EPISODIC else Category.FACT
    return type_, category


def _key(value: object) -> str:
    return _NON_WORD.sub("_", _text(value).casefold())[:MAX_KEY_CHARS].strip("_")


def _memory_number(item: Mapping[Any, Any]) -> int | None:
    for name in ("memory", "id", "memory_id"):
        value = item.get(name)
        if type(value) is int:
            return value
        if isinstance(value, str) and value.strip().isdecimal() and len(value) < 10:
            return int(value)
    return None


def _line_numbers(item: Mapping[Any, Any]) -> tuple[int, ...]:
    cited = next((item[name] for name in _LINES if item.get(name) is not None), ())
    numbers: set[int] = set()
    for each in cited if isinstance(cited, list) else [cited]:
        if type(each) is int:
            numbers.add(each)
        elif isinstance(each, str):
            numbers.update(int(digits) for digits in _INTEGER.findall(each[:100]))
    return tuple(sorted(numbers))


def _unit_number(value: object, default: float) -> float:
    """Return a number from 0 to 1, also from a scale to 10 or 100, or from a word such as "high"."""
    if isinstance(value, str):
        value = _LEVELS.get(value.strip().casefold(), value)
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return default
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return default
    if not 0 <= number <= 100:
        return default
    return number if number <= 1 else number / 10 if number <= 10 else number / 100


def turn_row(turn: Turn, max_chars: int) -> dict[str, object]:
    """Return a turn as the fields of a line of JSON in a prompt."""
    row: dict[str, object] = {"day": f"{turn.said_at:%Y-%m-%d %A}", "who": str(turn.role)}
    if turn.name:
        row["name"] = turn.name
    return {**row, "said": shorten(turn.content, max_chars)}


def memory_rows(records: Sequence[MemoryRecord], max_chars: int, *, with_keys: bool = False) -> str:
    """Return the memories as lines of JSON, numbered from 1; their text cannot end the fence around them."""
    lines = []
    for number, record in enumerate(records, 1):
        row: dict[str, object] = {"memory": number, "says": shorten(record.content, max_chars)}
        row["date"] = f"{record.stated_at:%Y-%m-%d}"
        if record.event_at is not None:
            row["event_date"] = f"{record.event_at:%Y-%m-%d}"
        if with_keys and record.key:
            row["key"] = record.key
        lines.append(json_line(row))
    return "\n".join(lines)


def operations_schema(*names: str) -> Mapping[str, Any]:
    """Return the schema of operations with only these fields."""
    operations = SCHEMA["properties"]["operations"]
    fields = {name: operations["items"]["properties"][name] for name in names}
    items = {**operations["items"], "properties": fields, "required": list(names)}
    return {**SCHEMA, "properties": {"operations": {**operations, "items": items}}}
