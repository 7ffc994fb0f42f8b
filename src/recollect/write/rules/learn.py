"""Learn from what the user said without a language model: plain statements only, each with its context.

When in doubt nothing is learned. Only the user's own statements count: no questions, no suppositions, no stories, no
quotes, nothing that was pasted. What the assistant said is context for them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from recollect.model.learned import Learned
from recollect.model.memory import Category, MemoryType
from recollect.model.turn import Role, Turn
from recollect.write.rules.clauses import Clause, clauses, corrects, leads_in
from recollect.write.rules.match import Hit, hits
from recollect.write.rules.pack import Pack, pack_for
from recollect.write.rules.retract import denied, ended, lost, retracted
from recollect.write.sentences import Sentence, sentence_of, sentences
from recollect.write.rules.steps import procedures
from recollect.write.rules.talk import Talk
from recollect.write.dates import dated, when_of

SOURCE = "rules"
_PROCEDURE_IMPORTANCE = 0.7
_SURE = 0.9
# Whoever states more in one breath has pasted a list.
_MOST_OF_A_TURN = 40
_TELLING_CHARS = 100
# What is a value by its looks, so that "not Friday" after it says only what it is not.
_EXACT = frozenset(["name", "given_name", "place", "amount", "date", "measure"])


@dataclass(frozen=True, slots=True)
class Found:
    """What rules found in some turns, and what they left out, each with its reason."""

    learned: tuple[Learned, ...]
    dropped: tuple[str, ...] = ()


def learn_by_rules(turns: Sequence[Turn], *, now: datetime) -> list[Learned]:
    """What the user's turns state, in order; a turn of the assistant only tells what the next is about."""
    return list(find_by_rules(turns, now=now).learned)


def find_by_rules(turns: Sequence[Turn], *, now: datetime) -> Found:
    """What the user's turns state, in order, and how much of it was too much to be kept."""
    # A short answer hardly tells its language; the conversation does.
    said = [turn.content for turn in turns if turn.role is Role.USER]
    telling = " ".join(each[:_TELLING_CHARS] for each in said) if len(said) > 1 else "".join(said)
    talk = Talk(pack_for(telling).language)
    learned: list[Learned] = []
    dropped: list[str] = []
    for turn in turns:
        if turn.role is Role.USER:
            talk.begin_turn()
            stated = [replace(each, evidence=(turn.id,), source=SOURCE) for each in _learn(turn, talk, now)]
            learned += _with_the_new(stated[:_MOST_OF_A_TURN])
            dropped += [
                f"more than {_MOST_OF_A_TURN} in one turn: {each.content}" for each in stated[_MOST_OF_A_TURN:]
            ]
            talk.heard = ""
        else:
            talk.hear(turn.content)
    return Found(tuple(_without_repeats(learned)), tuple(dropped))


def _learn(turn: Turn, talk: Talk, now: datetime) -> Iterator[Learned]:
    at = min(turn.said_at, now)
    pack = pack_for(turn.content, usual=talk.language)
    said = own_sentences(sentences(turn.content), pack)
    if any(is_unsaid(sentence, pack) for sentence in said):
        return
    own = list(_by_itself(said, talk, pack, at))
    yield from own
    # What states nothing by itself may be the answer to a question.
    if not own and (answer := talk.answered(turn.content)):
        yield from _stated([sentence_of(answer)], talk, pack_for(answer, usual=talk.language), at)


def is_unsaid(sentence: Sentence, pack: Pack) -> bool:
    """Whether the user asks not to have it kept: "off the record"."""
    return not pack.cues["unsaid"].isdisjoint(sentence.words) and bool(pack.patterns["unsaid"].match(sentence.text))


def _by_itself(said: list[Sentence], talk: Talk, pack: Pack, at: datetime) -> Iterator[Learned]:
    steps = procedures(said, pack)
    for each in steps:
        yield Learned(
            content=each.text,
            key=each.key,
            correction=each.corrects and each.key is not None,
            type=MemoryType.PROCEDURAL,
            category=Category.FACT,
            importance=_PROCEDURE_IMPORTANCE,
            confidence=_SURE,
        )
    taken = {place for each in steps for place in each.places}
    yield from _stated([sentence for place, sentence in enumerate(said) if place not in taken], talk, pack, at)


def own_sentences(said: list[Sentence], pack: Pack) -> list[Sentence]:
    """The sentences up to where the user speaks as somebody else, or brings a text to work on."""
    for place, sentence in enumerate(said):
        if not pack.cues["foreign"].isdisjoint(sentence.words) and pack.patterns["foreign"].search(sentence.text):
            return said[:place]
    return said


def _stated(said: Sequence[Sentence], talk: Talk, pack: Pack, at: datetime) -> Iterator[Learned]:
    before, wrong = "", False
    for sentence in said:
        for clause in clauses(sentence, pack):
            yield from _from_clause(replace(clause, corrects=clause.corrects or wrong), talk, pack, at, before)
        talk.note(sentence.text)
        # "No, sorry. It is Friday."
        wrong = corrects(sentence.text, pack) and leads_in(sentence.text, pack)
        before = "" if sentence.asks else sentence.text


def _from_clause(clause: Clause, talk: Talk, pack: Pack, at: datetime, before: str) -> Iterator[Learned]:
    if (gone := retracted(clause, talk, pack)) is not None:
        yield from gone
        return
    clause = _without_the_old(clause, pack)
    for hit in hits(clause, pack):
        whole = talk.completed(hit, pack)
        if clause.changes or clause.corrects:
            whole = talk.renewed(whole, pack)
        if whole.rule.topical and whole.key is None and before:
            # What it belongs to was not found, but it may stand in the sentence before.
            whole = replace(whole, content=f"{before} {clause.said[:1].upper()}{clause.said[1:]}")
        learned = _learned(whole, clause, pack, at)
        if learned is not None:
            yield from lost(clause, talk, pack)
            talk.state([replace(whole, kept=learned.content)])
            yield learned
            yield from ended(whole, pack)
            if not (hit.rule.further or hit.more):
                return
    if (corrected := talk.instead(clause, pack) or talk.corrected(clause, pack)) is not None:
        talk.state([corrected])
        learned = _learned(corrected, clause, pack, at)
        if learned is not None:
            yield replace(learned, correction=True)
    else:
        yield from denied(clause, pack)


def _without_the_old(clause: Clause, pack: Pack) -> Clause:
    """The clause without what its value is not: "on Saturday, not Friday" says that Friday was wrong."""
    if " not " not in clause.plain or (old := pack.patterns["not_after"].search(clause.plain)) is None:
        return clause
    said = pack.patterns["not_after"].sub("", clause.said)
    without = replace(clause, said=said, plain=clause.plain[: old.start()], corrects=True, changes=True)
    hit = next(hits(without, pack), None)
    return without if hit is not None and (hit.rule.single or hit.rule.shape in _EXACT) else clause


def _learned(hit: Hit, clause: Clause, pack: Pack, at: datetime) -> Learned | None:
    """The hit with its time; None where it is nothing without one and there is none."""
    rule, content, occurred_at = hit.rule, hit.content, None
    if rule.when:
        text = content if rule.when != "said" else clause.said
        when = when_of(_without_the_day_before(text, pack), at=at, ahead=is_ahead(rule.when, clause, pack))
        if when is not None:
            occurred_at = when.start
            if rule.when == "said" and occurred_at > at:
                if when.span[0] < clause.said.find(hit.value):
                    # It is not so yet: "Next year I live in Paris".
                    return None
                occurred_at = None
            content = dated(content, when) if text is content else content
        elif rule.when.startswith("must"):
            return None
    return Learned(
        content=content,
        category=rule.category,
        type=rule.type,
        key=hit.key,
        value=hit.value if hit.key else None,
        importance=min(1.0, round(rule.importance + 0.1, 2)) if clause.kept else rule.importance,
        confidence=hit.confidence,
        occurred_at=occurred_at,
        # "Actually, I went out" corrects nothing: only what has a key is one value that can be wrong.
        correction=(clause.corrects and hit.key is not None) or (clause.changes and rule.single) or rule.only_known,
        only_known=rule.only_known,
    )


def _without_the_day_before(text: str, pack: Pack) -> str:
    """The text with nothing in the place of the day that something was put off from, so that it is not its time."""
    if (was := pack.patterns["was_on"].search(text)) is None:
        return text
    start, end = was.span("day")
    return f"{text[:start]}{' ' * (end - start)}{text[end:]}"


def is_ahead(when: str, clause: Clause, pack: Pack) -> bool:
    """Whether a day without a year lies before them, as far as the words tell."""
    if "ahead" not in when:
        return False
    if not pack.patterns["past"].search(clause.plain):
        return True
    return not when.startswith("maybe") and pack.patterns["ahead"].search(clause.plain) is not None


def _with_the_new(stated: Sequence[Learned]) -> list[Learned]:
    """What one turn states; "I am not 30, I am 31" is one correction, not something over and something new."""
    values = {each.key: each.value for each in stated if each.key is not None and not each.retraction}
    over = {each.key for each in stated if each.retraction and each.key in values and values[each.key] != each.value}
    return [
        replace(each, correction=True) if each.key in over else each
        for each in stated
        if not (each.retraction and each.key in over)
    ]


def _without_repeats(learned: Sequence[Learned]) -> list[Learned]:
    """What was learned, each statement once, where it was said first; one that was taken back in between stays."""
    kept: list[Learned] = []
    last: dict[str, Learned] = {}
    for each in learned:
        name = each.key or each.content.casefold()
        same = last.get(name)
        if same is None or (same.content, same.retraction) != (each.content, each.retraction):
            kept.append(each)
        last[name] = each
    return kept
