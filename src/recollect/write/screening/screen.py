"""Screen what was said: clean it, and tell whether anything in it is worth learning from.

Cleaning takes out what recall itself had put in, characters nobody sees, and secrets. What is left is worth a look
unless all that the user said is small talk: in doubt it is, since a needless look costs a little and a lost fact is
lost for good.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files

from recollect.language.small_talk import WORD, plain, small_talk
from recollect.model.invisible import normalise_invisible
from recollect.model.turn import Role, Turn
from recollect.read.decide import decide
from recollect.read.known_again import strip_recalled
from recollect.write.screening.redact import redact

# A refusal says no more than that; longer ones go on to something.
_LONGEST_REFUSAL = 400
# The questions of a turn are at its end.
_QUESTION_CHARS = 400
_SENTENCE_END = re.compile(r"[.!\n。！]+")
_QUESTION_MARK = re.compile("[?\uff1f\u061f]")


@dataclass(frozen=True, slots=True)
class Screened:
    """The turns as they may be learned from, whether there is anything to learn, and why or why not."""

    turns: tuple[Turn, ...]
    worth: bool
    reason: str
    redacted: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _EmptyTalk:
    more: frozenset[tuple[str, ...]]
    answers: frozenset[str]
    answer_parts: tuple[str, ...]
    answer_signs: frozenset[str]
    offers: tuple[str, ...]
    echoes: tuple[tuple[str, ...], ...]
    refusals: tuple[str, ...]
    goes_on: re.Pattern[str]
    asking: frozenset[str]
    own: frozenset[str]
    requests: tuple[tuple[str, ...], ...]
    longest_request: int
    keys: tuple[str, ...]
    least_run: int


def screen(turns: Sequence[Turn], *, before: Sequence[Turn] = ()) -> Screened:
    """The turns cleaned, and whether anything was said that is worth learning from.

    `before` is what was said right before them: a bare "yes" tells something only after a question.
    """
    kept: list[Turn] = []
    found: list[str] = []
    for turn in turns:
        cleaned, kinds = _cleaned(turn)
        found += kinds
        if cleaned is not None:
            kept.append(cleaned)
    worth, reason = _worth(kept, before)
    # As context a refusal is worth less than nothing: what an assistant cannot do is no fact about the user.
    useful = tuple(turn for turn in kept if turn.role is Role.USER or not is_refusal(turn.content))
    return Screened(useful, worth, reason, tuple(found))


def is_refusal(text: str) -> bool:
    """Whether an assistant says no more than that it will not or cannot."""
    if len(text) > _LONGEST_REFUSAL:
        return False
    folded = plain(text.strip()).replace("\u2019", "'")
    known = _empty_talk()
    return folded.startswith(known.refusals) and not known.goes_on.search(folded)


def _cleaned(turn: Turn) -> tuple[Turn | None, tuple[str, ...]]:
    """The turn as it may be learned from, or None if nothing is left of it; and what was redacted."""
    text = strip_recalled(normalise_invisible(turn.content))
    if not text.strip():
        return None, ()
    redacted = redact(text)
    name = normalise_invisible(turn.name) if turn.name else turn.name
    if redacted.text == turn.content and name == turn.name:
        return turn, ()
    return replace(turn, content=redacted.text, name=name), redacted.found


def _worth(turns: Sequence[Turn], before: Sequence[Turn]) -> tuple[bool, str]:
    said = [turn for turn in turns if turn.role is Role.USER]
    if not said:
        return False, "the user said nothing"
    reason = ""
    whole = [*before[-1:], *turns]
    for at, turn in enumerate(whole):
        if turn.role is not Role.USER or at < len(before[-1:]):
            continue
        previous = whole[at - 1] if at else None
        following = whole[at + 1] if at + 1 < len(whole) else None
        reason = _why_empty(turn, previous, following)
        if not reason:
            return True, "the user said something"
    return False, reason


def _why_empty(turn: Turn, previous: Turn | None, following: Turn | None) -> str:
    """Why nothing can be learned from what the user said; empty when something may be."""
    known = _empty_talk()
    words = _words(turn.content)
    asked = previous is not None and previous.role is Role.ASSISTANT and _asks(previous.content)
    if words and not asked and all(map(_is_mashed, words)):
        return "there are no words in it"
    if not words:
        return "" if asked and known.answer_signs & set(turn.content) else "there are no words in it"
    if tuple(words) in known.more:
        return "" if asked and known.answers & set(words) else "it only asks to go on"
    if small_talk().is_all_of(words):
        answers = known.answers & set(words) or any(part in turn.content for part in known.answer_parts)
        echoes = previous is not None and any(_has(words, phrase) for phrase in known.echoes)
        return "" if (asked and answers) or echoes else "it is small talk"
    refused = following is not None and following.role is Role.ASSISTANT and is_refusal(following.content)
    if refused and _only_requests(turn.content, words):
        return "it asks for what was refused"
    if not _is_one_question(turn.content):
        return ""
    if not decide(turn.content).search:
        # What calls for none of the user's memories tells none either.
        return "it asks about the world"
    own = words[0] not in known.asking or known.own.intersection(words)
    return "it is a question that was not answered" if refused and not own else ""


def _only_requests(text: str, words: Sequence[str]) -> bool:
    """Whether it is one short request without a word of whoever makes it, nor a number, which could be of theirs."""
    known = _empty_talk()
    size = max((len(each) for each in known.requests if tuple(words[: len(each)]) == each), default=0)
    is_one = not _SENTENCE_END.search(text.strip().rstrip(".!")) and len(words) <= known.longest_request
    return bool(size) and is_one and not known.own.intersection(words[size:]) and not any(map(str.isdigit, text))


def _is_mashed(word: str) -> bool:
    """Whether a word is a run over the keys, once or again and again, or one key held down."""
    known = _empty_talk()
    if len(word) < known.least_run or not word.isalpha():
        return False
    sizes = (size for size in range(1, len(word) + 1) if len(word) % size == 0)
    unit = next(word[:size] for size in sizes if word[:size] * (len(word) // size) == word)
    is_run = len(unit) == 1 or len(unit) >= known.least_run
    return is_run and any(unit in keys or unit[::-1] in keys for keys in known.keys)


def _has(words: Sequence[str], phrase: tuple[str, ...]) -> bool:
    return any(tuple(words[at : at + len(phrase)]) == phrase for at in range(len(words)))


def _asks(text: str) -> bool:
    """Whether an assistant's turn ends by asking something about the user, rather than offering help."""
    asked = False
    for sentence in _SENTENCE_END.split(text[-_QUESTION_CHARS:]):
        if _QUESTION_MARK.search(sentence):
            folded = plain(sentence)
            asked = asked or not any(offer in folded for offer in _empty_talk().offers)
    return asked


def _is_one_question(text: str) -> bool:
    """Whether it is a single question and nothing else."""
    text = text.strip()
    return len(_QUESTION_MARK.findall(text)) == 1 and text[-1] in "?\uff1f" and not _SENTENCE_END.search(text)


@cache
def _empty_talk() -> _EmptyTalk:
    table = tomllib.loads((files(__package__) / "empty_talk.toml").read_text(encoding="utf-8"))
    return _EmptyTalk(
        more=frozenset(tuple(_words(phrase)) for phrase in table["more"]),
        answers=_words_in(table["answers"]),
        answer_parts=tuple(table["answer_parts"]),
        answer_signs=frozenset(table["answer_signs"]),
        offers=tuple(map(plain, table["offers"])),
        echoes=tuple(tuple(_words(phrase)) for phrase in table["echoes"]),
        refusals=tuple(map(plain, table["refusals"])),
        goes_on=re.compile("|".join(rf"{re.escape(plain(phrase))}(?!['a-z])" for phrase in table["goes_on"])),
        asking=_words_in(table["asking"]),
        own=_words_in(table["own"]),
        requests=tuple(tuple(_words(phrase)) for phrase in table["requests"]),
        longest_request=table["longest_request"],
        keys=tuple(table["keys"]),
        least_run=table["least_run"],
    )


def _words_in(text: str) -> frozenset[str]:
    return frozenset(_words(text))


def _words(text: str) -> list[str]:
    return WORD.findall(plain(text))
