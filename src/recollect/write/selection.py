"""Learn without an LLM: the statements that the selector picks, in the user's words, with keys and dates."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from recollect.language.statement_dates import find_date, insert_date
from recollect.model.extracted import ExtractedFact
from recollect.model.memory import Category, MemoryType
from recollect.model.times import now
from recollect.model.turn import Role, Turn
from recollect.write.keyed import declines_memory, explicit_request, find_key
from recollect.write.select import KEEP_THRESHOLD, MAX_STATEMENTS, SelectedStatement, score_statements
from recollect.write.sentences import split_sentences

SELECTOR_SOURCE = "selector"
_IMPORTANCE = {
    "identity": 0.8, "constraint": 0.8, "instruction": 0.7, "preference": 0.6, "fact": 0.5, "event": 0.5,
    "procedure": 0.6,
}  # fmt: skip
# A day without a year lies ahead, unless something happened on it.
_PAST_TENSE = re.compile(
    r"\b(?:was|were|had|went|got|did|saw|met|bought|\w{3,}ed|yesterday|ago|last|since|gestern|war|hatte|wurde|letzt\w+|ge\w+t|ayer|fui"
    r"|estuve|pasad[oa]|hier|était|dernier|dernière)\b|昨|上[周个]|了",
    re.IGNORECASE,
)
# What the user asks to have remembered is kept, however unlikely the selector finds it.
_REQUESTED_CONFIDENCE = 0.9
# What has the form of a keyed fact needs less support from the selector.
_KEYED_THRESHOLD = 0.2


def select_facts(turns: Sequence[Turn]) -> list[ExtractedFact]:
    """Return what the user's turns state that is worth remembering; an assistant's turns state nothing."""
    has_several_speakers = len({turn.name for turn in turns if turn.role is Role.USER}) > 1
    facts: dict[str, ExtractedFact] = {}
    for turn in turns:
        if turn.role is not Role.USER or declines_memory(turn.content):
            continue
        for fact in _turn_facts(turn, name=turn.name if has_several_speakers else None):
            facts.setdefault(fact.content.casefold(), fact)
    return list(facts.values())


def may_contain_facts(turns: Sequence[Turn], *, threshold: float) -> bool:
    """Return whether some statement of the user's may be worth remembering: the LLM need not be asked otherwise."""
    for turn in turns:
        if turn.role is not Role.USER:
            continue
        scored = score_statements(turn.content)
        # What cannot be scored, such as a message that is all quotation, is for the LLM to judge.
        if not scored or any(each.confidence >= threshold or find_key(each.text) for each in scored):
            return True
        if any(explicit_request(each.text) for each in split_sentences(turn.content)):
            return True
    return False


def _turn_facts(turn: Turn, *, name: str | None) -> Iterator[ExtractedFact]:
    requests = [request for sentence in split_sentences(turn.content) if (request := explicit_request(sentence.text))]
    for request in requests:
        yield build_fact(SelectedStatement(request, request, _REQUESTED_CONFIDENCE, "fact", "new"), turn, name=name)
    chosen = [each for each in score_statements(turn.content) if _passes_threshold(each)]
    for selected in chosen[:MAX_STATEMENTS]:
        if not any(selected.text in request for request in requests):
            yield build_fact(selected, turn, name=name)


def _passes_threshold(selected: SelectedStatement) -> bool:
    threshold = _KEYED_THRESHOLD if find_key(selected.text) else KEEP_THRESHOLD
    return selected.confidence >= threshold and not explicit_request(selected.sentence)


def build_fact(selected: SelectedStatement, turn: Turn, *, name: str | None = None) -> ExtractedFact:
    """Return a selected statement as a fact, with its key if it has one and its date resolved."""
    at = min(turn.said_at, now())
    keyed = find_key(selected.text) if name is None and selected.change != "ended" else None
    category = keyed.category if keyed else selected.category
    day = find_date(selected.text, at=at, ahead=not _PAST_TENSE.search(selected.text))
    content = insert_date(selected.text, day) if day else selected.text
    content = f"{content[:1].upper()}{content[1:]}"
    return ExtractedFact(
        content=f"{name}: {content}" if name else content,
        category=Category.FACT if category == "procedure" else Category(category),
        type=MemoryType.PROCEDURAL if category == "procedure" else None,
        key=keyed.key if keyed else None,
        value=keyed.value if keyed else None,
        importance=_IMPORTANCE[category],
        confidence=round(selected.confidence, 2),
        said_at=turn.said_at,
        occurred_at=day.start if day else None,
        evidence=(turn.id,),
        correction=selected.change == "correction" or keyed is not None,
        source=SELECTOR_SOURCE,
    )
