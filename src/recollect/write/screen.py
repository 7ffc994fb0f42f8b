"""Screen turns: clean them, and decide whether there is anything to learn.

Cleaning removes injected context, invisible characters and secrets. Turns have no content if every user turn is small
talk or a question about the world. In doubt they have: a needless extraction costs less than a lost fact.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from recollect.frozen_dataclass import frozen_dataclass
from recollect.lazy_pattern import lazy_pattern
from recollect.model.text import normalise_invisible
from recollect.model.turn import Role, Turn
from recollect.read.decide import decide
from recollect.read.strip_context import strip_context
from recollect.text.small_talk import WORD, fold_text, load_small_talk
from recollect.write.redact import redact

# A longer text is more than a refusal.
_MAX_REFUSAL_CHARS = 400
_ASKS_ABOUT_WORLD = "it asks about the world"
# Questions are searched for at the end of a turn.
_QUESTION_CHARS = 400
_SENTENCE_END = lazy_pattern(r"[.!\n。！]+")
_QUESTION_MARK = lazy_pattern("[?\uff1f\u061f]")


@frozen_dataclass
class Screened:
    """The cleaned turns, whether they have content and why, and the kinds of redacted secrets.

    A conversation `has_topic` if it has content or asks about the world: nothing can be learned about the user from
    such questions, but a summary can say what was discussed.
    """

    turns: tuple[Turn, ...]
    has_content: bool
    reason: str
    redacted: tuple[str, ...] = ()
    has_topic: bool = True


class _SmallTalkCues:
    """The compiled words and phrases of small_talk_cues.toml."""

    def __init__(self, table: Mapping[str, Any]) -> None:
        self.more = {tuple(_words(phrase)) for phrase in table["more"]}
        self.answers = frozenset(_words(table["answers"]))
        self.answer_parts: list[str] = table["answer_parts"]
        self.answer_signs = frozenset(table["answer_signs"])
        self.offers = [fold_text(phrase) for phrase in table["offers"]]
        self.echoes = [tuple(_words(phrase)) for phrase in table["echoes"]]
        self.refusals = tuple(fold_text(phrase) for phrase in table["refusals"])
        goes_on = "|".join(rf"{re.escape(fold_text(phrase))}(?!['a-z])" for phrase in table["goes_on"])
        self.goes_on = re.compile(goes_on)
        self.question_words = frozenset(_words(table["asking"]))
        self.first_person_words = frozenset(_words(table["own"]))
        self.requests = [tuple(_words(phrase)) for phrase in table["requests"]]
        self.max_request_words: int = table["longest_request"]
        self.keys: list[str] = table["keys"]
        self.min_run: int = table["least_run"]


def screen(turns: Sequence[Turn], *, before: Sequence[Turn] = ()) -> Screened:
    """Clean turns, and decide whether there is anything to learn from them.

    `before` are the preceding turns: a bare "yes" has content only after a question.
    """
    cleaned_turns: list[Turn] = []
    redacted: list[str] = []
    for turn in turns:
        cleaned, kinds = _clean_turn(turn)
        redacted += kinds
        if cleaned is not None:
            cleaned_turns.append(cleaned)
    has_content, reasons = _check_content(cleaned_turns, before)
    # Refusals of the assistant state no fact about the user.
    useful = tuple(turn for turn in cleaned_turns if turn.role is Role.USER or not is_refusal(turn.content))
    has_topic = has_content or _ASKS_ABOUT_WORLD in reasons
    return Screened(useful, has_content, reasons[-1], tuple(redacted), has_topic)


def is_refusal(text: str) -> bool:
    """Return whether a text is only an assistant's refusal."""
    if len(text) > _MAX_REFUSAL_CHARS:
        return False
    folded = fold_text(text.strip()).replace("\u2019", "'")
    cues = _small_talk_cues()
    return folded.startswith(cues.refusals) and not cues.goes_on.search(folded)


def _clean_turn(turn: Turn) -> tuple[Turn | None, tuple[str, ...]]:
    """Return the cleaned turn, None if nothing is left, and the kinds of redacted secrets."""
    text = strip_context(normalise_invisible(turn.content))
    if not text.strip():
        return None, ()
    redacted = redact(text)
    name = normalise_invisible(turn.name) if turn.name else turn.name
    if redacted.text == turn.content and name == turn.name:
        return turn, ()
    return replace(turn, content=redacted.text, name=name), redacted.kinds


def _check_content(turns: Sequence[Turn], before: Sequence[Turn]) -> tuple[bool, list[str]]:
    """Return whether the turns have content, and the reason, or else one for each turn of the user."""
    user_turns = [turn for turn in turns if turn.role is Role.USER]
    if not user_turns:
        return False, ["the user said nothing"]
    reasons: list[str] = []
    whole = [*before[-1:], *turns]
    for at, turn in enumerate(whole):
        if turn.role is not Role.USER or at < len(before[-1:]):
            continue
        previous = whole[at - 1] if at else None
        following = whole[at + 1] if at + 1 < len(whole) else None
        reason = _empty_reason(turn, previous, following)
        if not reason:
            return True, ["the user said something"]
        reasons.append(reason)
    return False, reasons


def _empty_reason(turn: Turn, previous: Turn | None, following: Turn | None) -> str:
    """Return why nothing can be learned from a user turn; empty if something may be."""
    cues = _small_talk_cues()
    words = _words(turn.content)
    is_answer = previous is not None and previous.role is Role.ASSISTANT and _asks_about_user(previous.content)
    if words and not is_answer and all(map(_is_keyboard_mash, words)):
        return "there are no words in it"
    if not words:
        return "" if is_answer and cues.answer_signs & set(turn.content) else "there are no words in it"
    if tuple(words) in cues.more:
        return "" if is_answer and cues.answers & set(words) else "it only asks to go on"
    if load_small_talk().is_all_of(words):
        answers = cues.answers & set(words) or any(part in turn.content for part in cues.answer_parts)
        echoes = previous is not None and any(_contains_phrase(words, phrase) for phrase in cues.echoes)
        return "" if (is_answer and answers) or echoes else "it is small talk"
    refused = following is not None and following.role is Role.ASSISTANT and is_refusal(following.content)
    if refused and _only_requests(turn.content, words):
        return "it asks for what was refused"
    if not _is_one_question(turn.content):
        return ""
    if not decide(turn.content).search:
        # A question that needs no memories of the user states none either.
        return _ASKS_ABOUT_WORLD
    own = words[0] not in cues.question_words or cues.first_person_words.intersection(words)
    return "it is a question that was not answered" if refused and not own else ""


def _only_requests(text: str, words: Sequence[str]) -> bool:
    """Return whether the text is one short request without words about the user and without numbers."""
    cues = _small_talk_cues()
    size = max((len(each) for each in cues.requests if tuple(words[: len(each)]) == each), default=0)
    is_one = not _SENTENCE_END.search(text.strip().rstrip(".!")) and len(words) <= cues.max_request_words
    return (
        bool(size)
        and is_one
        and not cues.first_person_words.intersection(words[size:])
        and not any(map(str.isdigit, text))
    )


def _is_keyboard_mash(word: str) -> bool:
    """Return whether a word is a run over the keyboard, possibly repeated, or one repeated key."""
    cues = _small_talk_cues()
    if len(word) < cues.min_run or not word.isalpha():
        return False
    sizes = (size for size in range(1, len(word) + 1) if len(word) % size == 0)
    unit = next(word[:size] for size in sizes if word[:size] * (len(word) // size) == word)
    is_run = len(unit) == 1 or len(unit) >= cues.min_run
    return is_run and any(unit in keys or unit[::-1] in keys for keys in cues.keys)


def _contains_phrase(words: Sequence[str], phrase: tuple[str, ...]) -> bool:
    return any(tuple(words[at : at + len(phrase)]) == phrase for at in range(len(words)))


def _asks_about_user(text: str) -> bool:
    """Return whether an assistant's turn ends with a question about the user, not with an offer of help."""
    has_question = False
    for sentence in _SENTENCE_END.split(text[-_QUESTION_CHARS:]):
        if _QUESTION_MARK.search(sentence):
            folded = fold_text(sentence)
            has_question = has_question or not any(offer in folded for offer in _small_talk_cues().offers)
    return has_question


def _is_one_question(text: str) -> bool:
    """Return whether the text is a single question and nothing else."""
    text = text.strip()
    return len(_QUESTION_MARK.findall(text)) == 1 and text[-1] in "?\uff1f" and not _SENTENCE_END.search(text)


@cache
def _small_talk_cues() -> _SmallTalkCues:
    table = tomllib.loads(Path(__file__).with_name("small_talk_cues.toml").read_text(encoding="utf-8"))
    return _SmallTalkCues(table)


def _words(text: str) -> list[str]:
    return WORD.findall(fold_text(text))
