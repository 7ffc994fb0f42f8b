"""Judge a summary before it is kept: one that is worse than what there is never takes its place.

A summary is good enough if it
- says something, and is not a refusal, a repetition of the question or a runaway;
- is not less than half as long as the one it replaces, unless it covers less, nor absurdly short for what it covers;
- still has the names and numbers of the one it replaces, but for numbers that were corrected since;
- is about what was said, with no number that nobody said;
- does not instruct, unless the user did.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from recollect.conversation.asking import shown
from recollect.ledger.terms import terms_of
from recollect.model.turn import Turn
from recollect.write.extraction.ground import Said, scripts_of
from recollect.write.extraction.spoken import spoken_numbers
from recollect.write.extraction.words import has_capital_nouns, names_of, readings, words
from recollect.write.screening.imperatives import imperative_in
from recollect.write.screening.screen import is_refusal
from recollect.write.screening.trust import words_of_user

# Longer than this is no summary.
MAX_CHARS = 6_000
# A long summary may let go of so large a part of its names and numbers, to have room for what is new.
LONG_CHARS = 1_200
MAX_LOST_SHARE = 0.3
# What is said in so many characters takes at least one character to sum up, up to a sentence.
CHARS_EACH = 50
SENTENCE_CHARS = 60
# So much may be written about the shortest talk.
ROOM_CHARS = 400
# Of the words of a summary, so many must have been said; the rest may be how it is put.
MIN_SAID_SHARE = 0.2
# Up to here numbers count things or days, and a summary may count for itself.
_LARGEST_COUNT = 31
_MAX_TOLD = 5
# How many times larger or smaller a number may be that corrects another.
_SIZE = 10

_DATE = re.compile(r"(?<!\d)(\d{4})-\d{2}-(\d{2})(?!\d)")


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a text may be kept; the reason says why not."""

    reason: str = ""

    @property
    def ok(self) -> bool:
        return not self.reason


def good_enough(new: str, old: str, turns: Sequence[Turn], *, covers_less: bool = False, known: str = "") -> Verdict:
    """Whether `new` may stand for the turns, and for what `old` stood for, in the place of `old`.

    `covers_less` says that some of what `old` told of is gone, so that it may be shorter. `known` may be told of
    as if it had been said.
    """
    covered = sum(len(turn.content) for turn in turns)
    wrong = _wrong_form(new, covered + len(old)) or _too_short(new, old, covered, covers_less=covers_less)
    if wrong:
        # What is no summary at all may be of any length, and is not looked at further.
        return Verdict(wrong)
    turns = shown(turns)
    reason = (
        ("" if covers_less else _lost(new, old, Said.of(turns)))
        or _unsaid(new, Said.of(turns, [old, known]))
        or _instructs(new, old, turns)
    )
    return Verdict(reason)


def _wrong_form(new: str, covered: int) -> str:
    if not any(char.isalnum() for char in new):
        return "it is empty"
    if is_refusal(new):
        return "it refuses"
    if len(new) > min(MAX_CHARS, max(ROOM_CHARS, covered + SENTENCE_CHARS)):
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


def _lost(new: str, old: str, since: Said) -> str:
    """What the old one had and the new one lacks, in words; nothing if that is no loss."""
    if not old:
        return ""
    numbers, names = readings(_DATE.sub(r"\1 \2", old)), _names(old)
    kept = Said([new])
    lost_numbers = [min(values) for values in dict.fromkeys(numbers) if not values & kept.numbers]
    lost_numbers = _uncorrected(lost_numbers, (since.numbers & kept.numbers) - Said([old]).numbers)
    # Here only the very name counts: Mario is not Maria.
    lost_names = [name for name in names if not kept.terms.issuperset(terms_of(name))]
    if has_capital_nouns(old):
        # Nouns may be put otherwise, as long as half of them are there.
        lost_names = [] if 2 * len(lost_names) <= len(names) else lost_names
    lost = [*(f"{number:f}" for number in lost_numbers), *lost_names]
    all_of_them = len(numbers) + len(names)
    if not lost or (len(old) >= LONG_CHARS and len(lost) <= MAX_LOST_SHARE * all_of_them):
        return ""
    return f"it no longer says {', '.join(lost[:_MAX_TOLD])}"


def _uncorrected(lost: Sequence[Decimal], come: set[Decimal]) -> list[Decimal]:
    """The lost numbers that no other came for: who corrects a number says another of about its size."""
    left, still = sorted(come), []
    for number in lost:
        instead = next((each for each in left if number <= each * _SIZE and each <= number * _SIZE), None)
        if instead is None:
            still.append(number)
        else:
            left.remove(instead)
    return still


def _names(text: str) -> list[str]:
    known = words()
    return [
        name
        for name in dict.fromkeys(word for run in names_of(text) for word in run)
        if name.casefold() not in known.months | known.days and not set(terms_of(name)) <= known.generic
    ]


def _unsaid(new: str, said: Said) -> str:
    years = {Decimal(day.year + off) for day in said.days for off in (-1, 0, 1)}
    allowed = said.numbers | spoken_numbers(new) | years
    unsaid = [values for values in readings(_DATE.sub(r"\1 \2", new)) if not values & allowed]
    if larger := [values for values in unsaid if min(values) > _LARGEST_COUNT]:
        return f"nobody said {min(larger[0]):f}"
    if not scripts_of(new) & said.scripts:
        # Written in another script than what was said: words cannot be compared.
        return ""
    terms = set(terms_of(new)) - words().generic
    told = sum(said.has_term(term) for term in terms)
    if terms and told < max(1.0, MIN_SAID_SHARE * len(terms)):
        return "it is not about what was said"
    return ""


def _instructs(new: str, old: str, turns: Sequence[Turn]) -> str:
    """Whether it tells a reader what to do, when no one did who may."""
    phrase = imperative_in(new)
    if not phrase or imperative_in(old) or imperative_in(words_of_user(turns)):
        return ""
    return f"it tells what to do ('{phrase}'), and the user did not say it"
