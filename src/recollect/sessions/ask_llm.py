"""Put a talk to a model as data and get back a text that was judged; what it cost is told in any case."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

from recollect.errors import BrokenAnswer, InvalidInput, InvalidSettings, ModelUnavailable
from recollect.ledger.tokenizer import terms_of
from recollect.model.text import normalise_invisible
from recollect.model.turn import Turn
from recollect.models.chat import AnsweringChat, Chat, ChatMessage, ModelAnswer
from recollect.prompts.rendering import json_line, max_chars_per_turn, shorten
from recollect.read.multilingual_stopwords import split_words, stop_words_for
from recollect.sessions.step_output import Cost
from recollect.text.grounding import find_names, missing_names, missing_numbers
from recollect.text.numbers import find_numbers, number_values, without_dates
from recollect.write.instructions import find_instruction
from recollect.write.quoted_text import user_text
from recollect.write.redact import redact
from recollect.write.screen import is_refusal

# Something of each turn is shown, however many there are; so there may not be too many.
MAX_TURNS = 80
# Room for a model that thinks before it writes; one that still ran out gets so many times as much.
MAX_TOKENS = 1_024
RETRY_TOKENS_FACTOR = 4

_MAX_REPEATED_CHARS = 2_000
_RETRY_PROMPT = "That cannot be used: {why}. Write it once more, and nothing else."
_LABEL = re.compile(r"\A[#*_ ]{0,6}(?:updated |new )?summary(?:[*_ ]{0,4}:[*_ ]{0,4}|[*_ ]{0,4}\n)", re.IGNORECASE)
_FENCE = re.compile(r"\A```[a-z]{0,20}\n|\n```\Z")


@dataclass(frozen=True, slots=True)
class LlmText:
    """What a model wrote; `text` is empty if none of it was good enough, and `why` says what was wrong."""

    text: str
    why: str
    cost: Cost


def shorten_turns(turns: Sequence[Turn]) -> list[Turn]:
    """The turns as a model is shown them: of long ones the beginning and the end."""
    share = max_chars_per_turn(len(turns))
    return [
        turn if len(turn.content) <= share else replace(turn, content=shorten(turn.content, share)) for turn in turns
    ]


def turns_as_json(turns: Sequence[Turn]) -> str:
    """The turns as a line of JSON each."""
    return "\n".join(json_line(_turn_row(turn)) for turn in shorten_turns(turns))


def sample_turns(turns: Sequence[Turn]) -> Sequence[Turn]:
    """As many turns as a model is shown: of too many the first quarter and the last three."""
    quarter = MAX_TURNS // 4
    return turns if len(turns) <= MAX_TURNS else [*turns[:quarter], *turns[-(MAX_TURNS - quarter) :]]


async def ask_text(chat: Chat, question: str, *, judge: Callable[[str], str], timeout_s: float | None) -> LlmText:
    """What the model writes, after at most one corrective question; an empty text if nothing of it was good enough.

    `judge` says what is wrong with a text, or nothing. A model that cannot be reached is a ModelUnavailable.
    """
    messages: list[ChatMessage] = [{"role": "user", "content": question}]
    cost, why, tokens = Cost(model=chat.model), "", MAX_TOKENS
    for attempt in range(2):
        try:
            answer = await _answer(chat, messages, max_tokens=tokens, timeout_s=timeout_s)
        except BrokenAnswer as error:
            cost += Cost(error.calls, error.tokens_in, error.tokens_out)
            answer = ModelAnswer(text="", cut_off=error.cut_off)
        except InvalidSettings:
            raise
        except InvalidInput as error:
            # The server will not read this, now or ever: asking again cannot help, doing without can.
            return LlmText("", f"the model refuses what it is asked: {error}", cost)
        except ModelUnavailable:
            if not attempt:
                raise
            break
        else:
            cost += Cost(1, answer.tokens_in, answer.tokens_out)
        text = clean_answer(answer.text)
        why = "it was cut off" if answer.cut_off else judge(text)
        if not why:
            return LlmText(text, "", cost)
        tokens = MAX_TOKENS * RETRY_TOKENS_FACTOR if answer.cut_off else MAX_TOKENS
        previous_answer = answer.text[:_MAX_REPEATED_CHARS].strip() or "(no answer)"
        messages = [
            messages[0],
            {"role": "assistant", "content": previous_answer},
            {"role": "user", "content": _RETRY_PROMPT.format(why=why)},
        ]
    return LlmText("", why, cost)


async def _answer(
    chat: Chat, messages: Sequence[ChatMessage], *, max_tokens: int, timeout_s: float | None
) -> ModelAnswer:
    if isinstance(chat, AnsweringChat):
        return await chat.answer(messages, max_tokens=max_tokens, timeout_s=timeout_s)
    return ModelAnswer(text=await chat.complete(messages, max_tokens=max_tokens, timeout_s=timeout_s))


def clean_answer(text: str) -> str:
    """The text without secrets, and without what models put around it: a fence, a heading, quotation marks."""
    text = _FENCE.sub("", normalise_invisible(text).strip()).strip()
    text = _LABEL.sub("", text, count=1).strip()
    if len(text) > 1 and text[0] == text[-1] == '"' and '"' not in text[1:-1]:
        text = text[1:-1].strip()
    return redact(text).text


def _turn_row(turn: Turn) -> dict[str, object]:
    line: dict[str, object] = {"day": f"{turn.said_at:%Y-%m-%d %A}", "who": str(turn.role)}
    if turn.name:
        line["name"] = turn.name
    return {**line, "said": turn.content}


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
