"""Summarise turns with an LLM, and check that a summary may be stored."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

from recollect.ledger.tokenizer import terms_of
from recollect.model.memory import Trust
from recollect.model.turn import Turn
from recollect.models.chat import Chat
from recollect.prompts import prompt
from recollect.prompts.rendering import json_line, max_chars_per_turn, new_delimiter, shorten
from recollect.read.multilingual_stopwords import split_words, stop_words_for
from recollect.text.instructions import find_instruction
from recollect.text.numbers import (
    find_names,
    find_numbers,
    missing_names,
    missing_numbers,
    number_values,
    without_dates,
)
from recollect.write.ask_llm import NO_COST, LlmCost, ask_for_text
from recollect.write.operations import turn_row
from recollect.write.quoted_text import user_text
from recollect.write.screen import is_refusal

# A prompt shows part of every turn, so their number is limited.
MAX_TURNS = 80
MAX_SUMMARY_CHARS = 6_000
# A long summary may drop this share of its names and numbers, to make space for new ones.
LONG_CHARS = 1_200
MAX_LOST_SHARE = 0.3
# A summary has at least one character for this many characters of the turns, up to a sentence.
CHARS_EACH = 50
SENTENCE_CHARS = 60
# The limit of a summary of very short turns.
SHORT_TALK_CHARS = 400
# This share of the words of a summary must occur in the turns.
MIN_SUPPORTED_SHARE = 0.2
# Numbers up to this count things or days, which a summary may do by itself.
_MAX_COUNT = 31
_MAX_LISTED = 5
# A number that corrects another is at most this many times larger or smaller.
_MAX_RATIO = 10
_NARRATION = frozenset(terms_of("user assistant conversation summary said asked wants plans"))


@dataclass(frozen=True, slots=True)
class Summary:
    """A text that stands for turns, by a "model" or an "extract" of quotes; empty if there is none."""

    text: str = ""
    made: str = "extract"
    trust: Trust = Trust.LOW
    digest: str | None = None
    cost: LlmCost = NO_COST
    reason: str = ""


async def summarize_with_llm(chat: Chat, prompt_name: str, *, check: Callable[[str], str], **inputs: str) -> Summary:
    """Return the summary that the LLM writes; an empty one with a reason if `check` objects to it twice."""
    template = prompt(prompt_name)
    question = template.fill(fence=new_delimiter(), **inputs)
    answer = await ask_for_text(chat, question, check=check)
    if answer.value:
        return Summary(answer.value, "model", Trust.LOW, template.digest, answer.cost)
    return Summary(cost=answer.cost, reason=answer.reason)


def shorten_turns(turns: Sequence[Turn]) -> list[Turn]:
    """Return the turns as a prompt shows them: only the beginning and the end of long ones."""
    share = max_chars_per_turn(len(turns))
    return [
        turn if len(turn.content) <= share else replace(turn, content=shorten(turn.content, share)) for turn in turns
    ]


def turns_as_json(turns: Sequence[Turn]) -> str:
    """Return a line of JSON for each turn; of too many turns the first quarter and the last three of the limit."""
    quarter = MAX_TURNS // 4
    if len(turns) > MAX_TURNS:
        turns = [*turns[:quarter], *turns[-(MAX_TURNS - quarter) :]]
    share = max_chars_per_turn(len(turns))
    return "\n".join(json_line(turn_row(turn, share)) for turn in turns)


def check_summary(new: str, old: str, turns: Sequence[Turn], *, context: str = "") -> str:
    """Return why `new` may not replace `old` as the summary of the turns; empty if it may.

    Statements in `context` count as part of the conversation.
    """
    covered = sum(len(turn.content) for turn in turns)
    wrong = _wrong_form(new, covered + len(old)) or _too_short(new, old, covered)
    if wrong:
        # A text of the wrong form may have any length, so the slower checks are skipped.
        return wrong
    turns = shorten_turns(turns)
    since = "\n".join(f"{turn.name or ''} {turn.content}" for turn in turns)
    years = {Decimal(turn.said_at.year + off) for turn in turns for off in (-1, 0, 1)}
    return (
        _lost_names_and_numbers(new, old, since)
        or _unsupported(new, f"{since}\n{old}\n{context}", years)
        or _unsupported_instruction(new, old, turns)
    )


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


def _too_short(new: str, old: str, covered: int) -> str:
    if 2 * len(new) < len(old):
        return "it is less than half as long as the summary it replaces"
    if len(new) < min(SENTENCE_CHARS, covered // CHARS_EACH):
        return "it is too short for the conversation"
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
    return f"it lacks {', '.join(lost[:_MAX_LISTED])}"


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
            return f"{token} is not in the conversation"
    terms, source_terms = set(terms_of(new)) - _NARRATION, set(terms_of(source))
    if len(terms & source_terms) >= max(1.0, MIN_SUPPORTED_SHARE * len(terms)) or not terms:
        return ""
    # Words of another script cannot be compared.
    return "it is not about the conversation" if _scripts(new) & _scripts(source) else ""


def _scripts(text: str) -> set[str]:
    return {unicodedata.name(char, "").split(" ")[0] for char in set(text) if char.isalpha()}


def _unsupported_instruction(new: str, old: str, turns: Sequence[Turn]) -> str:
    """Return the instruction that the summary gives, unless the old one or the user gave one."""
    reason = instruction_reason(new)
    return "" if reason and (find_instruction(old) or find_instruction(user_text(turns))) else reason


def instruction_reason(text: str) -> str:
    """Return why a person must review a text by a model: it gives an instruction; empty if it gives none."""
    phrase = find_instruction(text)
    return f"it gives an instruction ('{phrase}') that the user did not give" if phrase else ""
