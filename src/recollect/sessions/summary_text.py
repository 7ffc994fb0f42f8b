"""Summarise turns with an LLM or by quoting sentences, and check that a summary may be stored."""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

from recollect.ledger.tokenizer import terms_of
from recollect.model.memory import MODEL, Trust, text_hash
from recollect.model.turn import Role, Turn
from recollect.models.chat import Chat
from recollect.models.traits import Trait, compute_traits, trait_flags
from recollect.prompts import prompt
from recollect.prompts.rendering import json_line, max_chars_per_turn, new_delimiter, shorten
from recollect.quotes.quoted_text import ELIDED, user_text
from recollect.read.multilingual_stopwords import split_words, stop_words_for
from recollect.text.instruction_rule import instruction_reason
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
from recollect.write.redact import redact
from recollect.write.screen import is_refusal
from recollect.write.sentences import split_sentences

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

    @property
    def detail(self) -> dict[str, str]:
        """Return how it was made, and by which LLM."""
        return {"made": self.made, **({MODEL: self.cost.model} if self.digest else {})}


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
    """Return the instruction that the summary gives, unless the old one or the user gave it."""
    own = f"{old}\n{user_text(turns)}"
    own_terms = set(terms_of(own)) if find_instruction(own) else set()
    for line in filter(None, re.split(r"(?<=[.!?。！？])\s*|\n", new)):
        terms = set(terms_of(line)) - _NARRATION
        reason = instruction_reason(line)
        if reason and len(terms & own_terms) < max(1.0, MIN_SUPPORTED_SHARE * len(terms)):
            return reason
    return ""


BY_USER = "The user said:"
BY_ASSISTANT = "The assistant said:"

# Sentences below this share of the best weight are dropped.
_MIN_WEIGHT_SHARE = 0.3
# A sentence with this share of its words in picked ones is redundant.
_MAX_OVERLAP = 0.8
_MAX_SENTENCES = 8
# A shorter sentence without traits is filler.
_MIN_TERMS = 4
# The characters read of all turns, and at least of each.
_MAX_READ_CHARS = 100_000
_MIN_READ_CHARS = 400
_BONUS = {
    Trait.COUNTS: 2.0,
    Trait.INSTRUCTION: 2.0,
    Trait.PREFERS: 2.0,
    Trait.FIRST_PERSON: 1.5,
    Trait.TELLS_TIME: 1.0,
    Trait.ASKS: -2.0,
}
_QUOTED = re.compile("“([^“”]*)”")
_MARKS = str.maketrans({"“": "'", "”": "'", "\n": " "})


@dataclass(frozen=True, slots=True)
class _ScoredSentence:
    text: str
    terms: frozenset[str]
    bonus: float


def summarize_extractively(turns: Sequence[Turn], *, max_chars: int, earlier: Sequence[str] = ()) -> Summary:
    """Quote the user's most informative sentences in order; the assistant's only if the user has none.

    `earlier` are the user's sentences of an earlier summary. The summary is empty if there is no sentence.
    """
    user_sentences = [_score_sentence(text, None) for text in earlier]
    share = max(_MIN_READ_CHARS, _MAX_READ_CHARS // max(1, len(turns)))
    user_sentences += [
        _score_sentence(text, turn)
        for turn in turns
        if turn.role is Role.USER
        for text in _turn_sentences(turn, share)
    ]
    if picked := _pick(user_sentences, max_chars):
        return Summary(_format_quotes(BY_USER, picked), trust=Trust.HIGH)
    # An assistant may inform, never instruct.
    assistant_sentences = [
        _score_sentence(text, turn)
        for turn in turns
        if turn.role is Role.ASSISTANT
        for text in _turn_sentences(turn, share)
        if not find_instruction(text)
    ]
    picked = _pick(assistant_sentences, max_chars)
    return Summary(_format_quotes(BY_ASSISTANT, picked) if picked else "")


def split_extractive_summary(text: str) -> tuple[str, list[str]]:
    """Split a summary into prose and quoted sentences of the user."""
    prose, mark, quoted = text.rpartition(BY_USER)
    if not mark or (prose and not prose.endswith("\n")):
        return text.strip(), []
    return prose.strip(), _QUOTED.findall(quoted)


def _turn_sentences(turn: Turn, max_chars: int) -> Iterable[str]:
    """Return the sentences of a turn, without code and the like if there is anything else."""
    # The log may contain secrets; summaries may not.
    whole = redact(turn.content).text
    text = whole
    if len(text) > max_chars:
        # Cut between sentences: half of one could say something else.
        text = text[: 1 + max(text.rfind(end, 0, max_chars) for end in (". ", "! ", "? ", "\n"))]
    texts = [each.text for each in split_sentences(text)]
    # The beginning of a turn of code at least shows its kind.
    return texts or [whole.strip()[:200]]


def _score_sentence(text: str, turn: Turn | None) -> _ScoredSentence:
    plain = " ".join(text.translate(_MARKS).split())
    bonus = 0.0
    if turn is not None:
        flags = trait_flags(compute_traits(replace(turn, content=plain, exported_record=None).as_memory()))
        bonus = sum(weight for trait, weight in _BONUS.items() if trait in flags)
    else:
        # Being picked before counts like a first-person statement.
        bonus = _BONUS[Trait.FIRST_PERSON] + (_BONUS[Trait.COUNTS] if any(map(str.isdigit, plain)) else 0.0)
    return _ScoredSentence(plain, frozenset(terms_of(plain)), bonus - (1.0 if ELIDED in plain else 0.0))


def _pick(candidates: Sequence[_ScoredSentence], max_chars: int) -> list[str]:
    """Return the best sentences that fit, in their order."""
    candidates = [each for each in candidates if each.bonus > 0 or len(each.terms) >= _MIN_TERMS] or candidates
    weights = _weights(candidates)
    best_first = sorted(range(len(candidates)), key=lambda at: -weights[at])
    min_weight = max(weights, default=0.0) * _MIN_WEIGHT_SHARE
    picked: list[int] = []
    covered_terms: set[str] = set()
    seen: set[str] = set()
    chars_left = max_chars
    for at in best_first:
        each = candidates[at]
        mark = text_hash(each.text)
        repeats = bool(each.terms) and len(each.terms & covered_terms) >= _MAX_OVERLAP * len(each.terms)
        if weights[at] < min_weight or mark in seen or (picked and repeats) or not each.text:
            continue
        if len(each.text) > chars_left:
            if picked:
                continue
            each = replace(each, text=each.text[: max(chars_left, 1)].rstrip() + "…")
            candidates = [*candidates[:at], each, *candidates[at + 1 :]]
        picked.append(at)
        covered_terms |= each.terms
        seen.add(mark)
        chars_left -= len(each.text) + 3
        if len(picked) == _MAX_SENTENCES:
            break
    return [candidates[at].text for at in sorted(picked)]


def _weights(candidates: Sequence[_ScoredSentence]) -> list[float]:
    """Weigh each sentence by repeated words, normalised by length, and by its traits."""
    often = Counter(term for each in candidates for term in each.terms)
    weights = []
    for each in candidates:
        about = sum(1.0 + math.log(often[term]) for term in each.terms) / math.sqrt(len(each.terms) or 1)
        weights.append(max(0.0, about + each.bonus))
    return weights


def _format_quotes(by: str, picked: Sequence[str]) -> str:
    return f"{by} {' '.join(f'“{text}”' for text in picked)}"
