"""Judge a summary before it is stored: a worse one never replaces a better one.

A summary is good enough if it
- says something, and is not a refusal, a repetition of the question or a runaway;
- is not less than half as long as the one it replaces, unless it covers less, nor absurdly short for what it covers;
- still has the names and numbers of the one it replaces, except for numbers that were corrected since;
- is about what was said, with no number that nobody said;
- does not instruct, unless the user did.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from decimal import Decimal

from recollect.conversation.asking import shorten_turns
from recollect.ledger.terms import terms_of
from recollect.model.turn import Turn
from recollect.read.small_words import split_words, stop_words_for
from recollect.text.grounding import find_names, missing_names, missing_numbers
from recollect.text.numbers import find_numbers, number_values, without_dates
from recollect.write.screening.imperatives import find_instruction
from recollect.write.screening.screen import is_refusal
from recollect.write.screening.trust import user_text

MAX_SUMMARY_CHARS = 6_000
# A long summary may drop this share of its names and numbers, to make room for new ones.
LONG_CHARS = 1_200
MAX_LOST_SHARE = 0.3
# A summary has at least one character for so many of the talk, up to a sentence.
CHARS_EACH = 50
SENTENCE_CHARS = 60
# So much may be written about the shortest talk.
SHORT_TALK_CHARS = 400
# This share of the words of a summary must have been said; the rest may be how it is put.
MIN_SUPPORTED_SHARE = 0.2
# Up to here numbers count things or days, and a summary may count for itself.
_MAX_COUNT = 31
_MAX_LISTED = 5
# How many times larger or smaller a number may be that corrects another.
_MAX_RATIO = 10
_NARRATION = frozenset(terms_of("user assistant conversation summary said asked wants plans"))


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a text may be stored; the reason says why not."""

    reason: str = ""

    @property
    def ok(self) -> bool:
        return not self.reason


def check_summary(
    new: str, old: str, turns: Sequence[Turn], *, covers_less: bool = False, context: str = ""
) -> Verdict:
    """Judge whether `new` may stand for the turns and replace `old`.

    `covers_less` says that some of what `old` covered is gone, so that `new` may be shorter. `known` counts as said.
    """
    covered = sum(len(turn.content) for turn in turns)
    wrong = _wrong_form(new, covered + len(old)) or _too_short(new, old, covered, covers_less=covers_less)
    if wrong:
        # A text of the wrong form may be of any length, and is not read further.
        return Verdict(wrong)
    turns = shorten_turns(turns)
    since = "\n".join(f"{turn.name or ''} {turn.content}" for turn in turns)
    years = {Decimal(turn.said_at.year + off) for turn in turns for off in (-1, 0, 1)}
    reason = (
        ("" if covers_less else _lost_names_and_numbers(new, old, since))
        or _unsupported(new, f"{since}\n{old}\n{context}", years)
        or _unsupported_instruction(new, old, turns)
    )
    return Verdict(reason)


def _wrong_form(new: str, covered: int) -> str:
    if not any(char.isalnum() for char in new):
        return "it is empty"
    if is_refusal(new):
        return "it refuses"
    if len(new) > min(MAX_SUMMARY_CHARS, max(SHORT_TALK_CHARS, covered + SENTENCE_CHARS)):
        return "it is too long for a summary"
    if new[0] in "{[<" or '{"day": ' in new:
        return "it is not plain sentences"
    return ""


def _too_short(new: str, old: str, covered: int, *, covers_less: bool) -> str:
    if not covers_less and 2 * len(new) < len(old):
        return "it is less than half as long as the summary it replaces, and something of that is lost"
    if len(new) < min(SENTENCE_CHARS, covered // CHARS_EACH):
        return "it is too short for what it sums up"
    return ""


def _lost_names_and_numbers(new: str, old: str, since: str) -> str:
    """Return which names and numbers of the old summary the new one lacks; nothing if that is no loss."""
    names = find_names(old)
    lost_names = missing_names(old, new)
    if stop_words_for(split_words(old)).nouns_are_capital and 2 * len(lost_names) <= len(names):
        # Nouns may be reworded, as long as half of them are there.
        lost_names = []
    corrections = (number_values(since) & number_values(new)) - number_values(old)
    lost = [*_uncorrected(missing_numbers(old, new), corrections), *lost_names]
    count = len(names) + sum(1 for _ in find_numbers(old))
    if not lost or (len(old) >= LONG_CHARS and len(lost) <= MAX_LOST_SHARE * count):
        return ""
    return f"it no longer says {', '.join(lost[:_MAX_LISTED])}"


def _uncorrected(lost: dict[str, set[Decimal]], corrections: Collection[Decimal]) -> list[str]:
    """Return the lost numbers that no new number of about the same size replaces."""
    left, uncorrected = sorted(corrections), []
    for token, values in lost.items():
        size = max(values)
        correction = next((each for each in left if size <= each * _MAX_RATIO and each <= size * _MAX_RATIO), None)
        if correction is None:
            uncorrected.append(token)
        else:
            left.remove(correction)
    return uncorrected


def _unsupported(new: str, source: str, years: Collection[Decimal]) -> str:
    for token, values in missing_numbers(without_dates(new), source).items():
        if min(values) > _MAX_COUNT and not values & set(years):
            return f"nobody said {token}"
    terms, source_terms = set(terms_of(new)) - _NARRATION, set(terms_of(source))
    if len(terms & source_terms) >= max(1.0, MIN_SUPPORTED_SHARE * len(terms)) or not terms:
        return ""
    # Words of another script cannot be compared.
    return "it is not about what was said" if _scripts(new) & _scripts(source) else ""


def _scripts(text: str) -> set[str]:
    return {unicodedata.name(char, "").split(" ")[0] for char in set(text) if char.isalpha()}


def _unsupported_instruction(new: str, old: str, turns: Sequence[Turn]) -> str:
    """Return the instruction that the summary gives, unless the old one or the user gave one."""
    phrase = find_instruction(new)
    if not phrase or find_instruction(old) or find_instruction(user_text(turns)):
        return ""
    return f"it tells what to do ('{phrase}'), and the user did not say it"
