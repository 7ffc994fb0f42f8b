"""What an LLM may answer when asked to reconcile: its schema, and what of an answer can be used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from recollect.model.text import is_storable
from recollect.models.structured import InvalidAnswer, Partial
from recollect.write.screening.written import as_written
from recollect.write.settling.reading import Reading
from recollect.write.settling.relation import changed, keeps
from recollect.write.settling.same import Text, ready

# A text that is much shorter than what it stands for has lost something.
_SHRUNK = 0.6
# A memory is a sentence or two, however much a model likes to talk.
_MAX_CHARS = 1_000


class Action(StrEnum):
    """What an LLM may decide."""

    ADD = "ADD"
    UPDATE = "UPDATE"
    DELETE = "DELETE"
    NONE = "NONE"


SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "decisions": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "statement": {"type": "integer"},
                    "action": {"type": "string", "enum": [str(each) for each in Action]},
                    "memory": {"type": ["integer", "null"]},
                    "text": {"type": ["string", "null"]},
                },
                "required": ["statement", "action", "memory", "text"],
                "additionalProperties": False,
            },
        }
    },
    "required": ["decisions"],
    "additionalProperties": False,
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """What to do about one statement; both are meant by the numbers they were shown with."""

    statement: int
    action: Action
    memory: int | None = None
    text: str = ""


@dataclass(frozen=True, slots=True)
class Asked:
    """What the model was shown, by number; answers are held against it."""

    statements: Sequence[Text]
    memories: Sequence[Text]

    def verdicts(self, answer: object) -> Partial[tuple[Verdict, ...]]:
        """The decisions that can be used, with what is wrong with the others; an InvalidAnswer if there are none."""
        rows = answer.get("decisions") if isinstance(answer, Mapping) else answer
        if not isinstance(rows, list):
            raise InvalidAnswer('it has no list of "decisions"')
        good: list[Verdict] = []
        complaints: list[str] = []
        for row in rows[: 4 * len(self.statements) + 16]:
            found = self._verdict(row, good)
            if isinstance(found, Verdict):
                good.append(found)
            else:
                complaints.append(found)
        decided = {each.statement for each in good}
        missing = [str(number) for number in range(len(self.statements)) if number not in decided]
        if missing:
            complaints.append(f"there is no decision for statement {', '.join(missing)}")
        if not good:
            raise InvalidAnswer("; ".join(complaints[:5]))
        return Partial(tuple(good), tuple(complaints), worth=len(decided))

    def _verdict(self, row: object, before: Sequence[Verdict]) -> Verdict | str:
        """A decision, or what is wrong with it."""
        if not isinstance(row, Mapping):
            return f"{str(row)[:40]!r} is no decision"
        statement = _whole(row.get("statement"))
        if statement is None or not 0 <= statement < len(self.statements):
            return f"there is no statement {str(row.get('statement'))[:20]!r}"
        said = str(row.get("action")).strip().upper()
        if said not in tuple(Action):
            return f"statement {statement}: {said[:20]!r} is no action; they are ADD, UPDATE, DELETE and NONE"
        action = Action(said)
        memory = _whole(row.get("memory"))
        if memory is not None and not 0 <= memory < len(self.memories):
            return f"statement {statement}: there is no memory {memory}"
        if action in (Action.UPDATE, Action.DELETE):
            if memory is None:
                return f"statement {statement}: {action} needs the number of a memory"
            if any(each.memory == memory and each.action in (Action.UPDATE, Action.DELETE) for each in before):
                return f"statement {statement}: memory {memory} is changed twice"
        if action is not Action.UPDATE or memory is None:
            return Verdict(statement, action, memory)
        text = row.get("text")
        if isinstance(text, str) and is_storable(text):
            text = as_written(text)
        wrong = self._wrong_with(text, self.statements[statement], self.memories[memory])
        return f"statement {statement}: {wrong}" if wrong else Verdict(statement, action, memory, str(text).strip())

    def _wrong_with(self, text: object, new: Text, old: Text) -> str:
        """Why a text cannot stand in the place of a memory; empty if it can."""
        if not isinstance(text, str) or not text.strip():
            return "the text of the UPDATE is empty"
        if len(text) > _MAX_CHARS or not is_storable(text):
            return "the text of the UPDATE is too long or holds characters that cannot be kept"
        if new.reading is None or old.reading is None:
            return "it is too long to be updated; ADD it"
        read = ready(text).reading
        assert read is not None
        replaces = changed(new.reading, old.reading)
        sources = [new] if replaces else [new, old]
        for source in sources:
            if len(text.strip()) < _SHRUNK * len(source.plain):
                return f'the text of the UPDATE leaves out much of "{source.plain[:80]}"'
            lost = keeps(read, source.reading) if source.reading else ""
            if lost:
                return f'the text of the UPDATE leaves out or changes {lost} of "{source.plain[:80]}"'
        made_up = invented(read, new.reading, old.reading)
        return f"the text of the UPDATE makes up {made_up}" if made_up else ""


def invented(text: Reading, *sources: Reading) -> str:
    """A number or name in a text that none of its sources has; empty if there is none."""
    numbers = {number for source in sources for number in source.numbers}
    names = {name for source in sources for name in source.order}
    people = {person for source in sources for person in source.people}
    found = [number for number in text.numbers if number not in numbers]
    found += [name for name in text.names if name not in names]
    found += sorted(person[1:] for person in text.people - people)
    # What a text opens with may be a name too.
    found += [text.opening] * (bool(text.opening) and not any(text.opening in each.order for each in sources))
    return repr(found[0]) if found else ""


def _whole(value: object) -> int | None:
    """A whole number, also where a small model wrote it as text."""
    if isinstance(value, str) and value.strip().isdecimal() and len(value) < 10:
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
