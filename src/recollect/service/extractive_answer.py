"""The answers of the built-in model: remembered sentences, quoted with their sources, and nothing else."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache
from importlib.resources import files

from recollect.aio.erasable_cache import erasable_cache
from recollect.ledger.tokenizer import terms_of
from recollect.model.memory import Category
from recollect.model.result import Hit
from recollect.read.decide import DecisionRule, decide
from recollect.read.multilingual_stopwords import detect_language, split_words
from recollect.read.question import analyze_question
from recollect.read.question_model import QUESTION_MARKS, is_question
from recollect.read.rewrite import last_question
from recollect.read.sanitize import defang, one_line, remove_invisible
from recollect.text.small_talk import head_and_tail
from recollect.text.time_words import MONTHS
from recollect.write.select import score_statements

_MAX_QUOTES = 3
_MAX_OVERVIEW_QUOTES = 6
_MAX_QUOTE_CHARS = 300
# Longer memories are read up to here.
_MAX_READ_CHARS = 20_000
# Quotes whose score relative to the best one is lower are about something else.
_MIN_RELATIVE_SCORE = 0.6
# Hits with at least this score are more likely an answer than not.
_CONFIDENT_SCORE = 0.5
# Sentences of turns that are questions with at least this probability are not quoted.
_QUESTION_PROBABILITY = 0.8
# Sentences that share this part of their words and differ in a number are about one fact.
_MIN_OVERLAP = 0.5

_SENTENCE = re.compile(r"[^.!?…\n]*+(?:[.!?…]++(?!\s|$)[^.!?…\n]*+)*+[.!?…]*+")
_WORD = re.compile(r"[\w'’-]+")
_NUMBER = re.compile(r"\d[\d.,:]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestMemory:
    """Memory's part in a chat request; the answer of the built-in model uses nothing else.

    `stores_turns` says whether the user's message is stored, `degraded_reason` why memory could not be read.
    """

    hits: Sequence[Hit] = ()
    stores_turns: bool = True
    degraded_reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Quote:
    """A sentence of a memory, its relevance, and how many terms it shares with the question."""

    hit: Hit
    text: str
    shared: int
    relevance: float

    @property
    def created_at(self) -> datetime:
        return self.hit.record.created_at

    @property
    def terms(self) -> frozenset[str]:
        return frozenset(terms_of(self.text))


def answer_from_memory(conversation: str | Sequence[Mapping[str, object]], memory: RequestMemory | None) -> str:
    """Answer without an LLM: quote memories with date, speaker and id, and say that no LLM is configured."""
    question = head_and_tail(last_question(conversation))
    phrases = _phrases_for(question)
    if memory is None:
        return f"{phrases['off']}\n\n{phrases['no_llm']}"
    return "\n\n".join([*_compose(question, memory, phrases), phrases["no_llm"]])


def _compose(question: str, memory: RequestMemory, phrases: Mapping[str, str]) -> Iterator[str]:
    sentences = _split_sentences(question)
    questions = [each for each in sentences if is_question(each)]
    statements = [each for each in sentences if not is_question(each)]
    decision = decide(question)
    if decision.rule in (DecisionRule.NO_WORDS, DecisionRule.SMALL_TALK):
        yield phrases["greeting"]
        return
    if (
        statements
        and not questions
        and (decision.rule is DecisionRule.GENERAL_KNOWLEDGE or _is_command(statements[0], phrases))
    ):
        yield phrases["needs_llm"]
        return
    if statements and (decision.search or not questions):
        yield phrases["stored" if memory.stores_turns else "not_stored"]
    if questions:
        yield from _answer_question(" ".join(questions), memory, phrases)


def _answer_question(question: str, memory: RequestMemory, phrases: Mapping[str, str]) -> Iterator[str]:
    if memory.degraded_reason:
        yield phrases["unavailable"]
        return
    quotes = _select_quotes(question, memory.hits)
    about_all = any(cue in question.lower() for cue in phrases["about_me"].split("|"))
    if about_all and not any(each.shared for each in quotes):
        quotes = _overview_quotes(memory.hits)
    if quotes:
        sure = about_all or any(each.relevance >= _CONFIDENT_SCORE or each.shared > 1 for each in quotes)
        yield "\n".join([phrases["found" if sure else "unsure"], *(_format_quote(each, phrases) for each in quotes)])
    elif decide(question).rule is DecisionRule.GENERAL_KNOWLEDGE:
        yield phrases["needs_llm"]
    else:
        yield phrases["nothing" if memory.stores_turns else "nothing_not_stored"]


def _select_quotes(question: str, hits: Sequence[Hit]) -> list[_Quote]:
    """Return the few best sentences; of those about one fact, the newest."""
    quotes = [each for each in _make_quotes(hits, frozenset(terms_of(question))) if each.relevance or each.shared]
    quotes.sort(key=lambda each: (-each.relevance, -each.created_at.timestamp()))
    if not analyze_question(question).is_about_past:
        quotes = _keep_newest(quotes)
    return [each for each in quotes if each is quotes[0] or _is_comparable(each, quotes[0])][:_MAX_QUOTES]


def _is_comparable(quote: _Quote, best: _Quote) -> bool:
    """Return whether it answers as well; sentences near an answer score well too, but share fewer terms."""
    return quote.relevance >= _MIN_RELATIVE_SCORE * best.relevance and quote.shared >= best.shared


def _overview_quotes(hits: Sequence[Hit]) -> list[_Quote]:
    """Return the most important memories, whatever they are about."""
    quotes = sorted(_make_quotes(hits, frozenset()), key=lambda each: -each.hit.record.importance)
    return _keep_newest(quotes)[:_MAX_OVERVIEW_QUOTES]


def _make_quotes(hits: Sequence[Hit], question_terms: frozenset[str]) -> list[_Quote]:
    """Return a quote of each memory that states something; a turn and what was learned from it have one."""
    fitting = [hit for hit in hits if _is_statement(hit)]
    edited = {turn for hit in fitting if hit.record.version > 1 for turn in hit.record.evidence}
    turn_ids = {hit.id for hit in fitting} - edited
    learned: dict[str, list[Hit]] = {}
    quotable = []
    for hit in fitting:
        # The user's own words are better than what was learned from them, unless that was edited since.
        sources = turn_ids.intersection(hit.record.evidence) if hit.record.version == 1 else ()
        for turn in sources:
            learned.setdefault(turn, []).append(hit)
        if hit.id not in edited and not sources:
            quotable.append(hit)
    candidates = [_make_quote(hit, learned.get(hit.id, ()), question_terms) for hit in quotable]
    return [quote for quote in candidates if quote is not None]


def _keep_newest(quotes: Sequence[_Quote]) -> list[_Quote]:
    """Drop quotes that a newer one replaces; the newer one takes the best place of them."""
    newest: list[_Quote] = []
    for quote in quotes:
        at = next((at for at, other in enumerate(newest) if _is_same_fact(quote, other)), None)
        if at is None:
            newest.append(quote)
        elif quote.created_at > newest[at].created_at:
            newest[at] = replace(quote, relevance=newest[at].relevance)
    return newest


def _is_same_fact(one: _Quote, other: _Quote) -> bool:
    """Return whether only one can be current: one key, the same words and perhaps another number, or one is ended."""
    a, b = one.hit.record, other.hit.record
    if a.key and (a.category, a.key) == (b.category, b.key):
        return True
    older, newer = sorted((one, other), key=lambda each: each.created_at)
    if one.hit.score == other.hit.score and older.hit.scores.get("replaced") and newer.hit.scores.get("newest"):
        # Search ranked the newer one before the one it replaces.
        return True
    if older.created_at < newer.created_at and any(_is_about(each, older.text) for each in _changing(newer.text)):
        return True
    if a.detail.get("role", "user") != b.detail.get("role", "user"):
        return False
    numbers = [frozenset(each.rstrip(".,:") for each in _NUMBER.findall(quote.text)) for quote in (one, other)]
    words = [frozenset(each for each in quote.terms if not each[0].isdigit()) for quote in (one, other)]
    common = len(words[0] & words[1]) / max(1, min(map(len, words)))
    if all(numbers) and numbers[0] != numbers[1]:
        return common >= _MIN_OVERLAP
    return numbers[0] == numbers[1] and words[0] == words[1]


@erasable_cache(256)
def _changing(text: str) -> tuple[str, ...]:
    """Return the statements that correct or end something, by the selector."""
    return tuple(each.text for each in score_statements(text) if each.change != "new")


def _is_about(changing: str, text: str) -> bool:
    """Return whether a changing statement names what the text is about, or shares half of its terms with it."""
    names = {name.casefold() for name in analyze_question(changing).names} - MONTHS.keys()
    if not names.isdisjoint(split_words(text.casefold())):
        return True
    terms = frozenset(terms_of(changing))
    return len(terms & frozenset(terms_of(text))) * 2 >= len(terms) > 0


def _relevance(hit: Hit) -> float:
    """Return the score; 0 for memories that are included whatever the question is."""
    return hit.score if "relevance" in hit.scores else 0.0


def _is_statement(hit: Hit) -> bool:
    """Return whether a hit can be quoted: a turn of user or assistant or a memory, but no answer of this model."""
    record = hit.record
    if record.category is Category.TURN and record.detail.get("role") not in ("user", "assistant"):
        return False
    return not any(phrases["no_llm"] in record.content for phrases in _phrases().values())


def _make_quote(hit: Hit, learned: Sequence[Hit], question_terms: frozenset[str]) -> _Quote | None:
    """Return the sentence that shares most with the question; None if the memory has only questions.

    Memories `learned` from it count for its relevance.
    """
    text = remove_invisible(hit.record.content[:_MAX_READ_CHARS])
    is_turn = hit.record.category is Category.TURN
    sentences = [
        each
        for each in _split_sentences(text)
        if not (
            is_question(each, min_probability=_QUESTION_PROBABILITY) if is_turn else each.endswith(QUESTION_MARKS)
        )
    ]
    if not sentences:
        return None
    shared = [len(question_terms.intersection(terms_of(each))) for each in sentences]
    best = sentences[shared.index(max(shared))]
    full_text = " ".join(sentences)
    words = full_text if len(full_text) <= _MAX_QUOTE_CHARS else best
    words = words if len(words) <= _MAX_QUOTE_CHARS else words[:_MAX_QUOTE_CHARS].rpartition(" ")[0] + " …"
    return _Quote(
        hit=hit,
        text=one_line(defang(words).text),
        shared=max(*shared, 0, *(len(question_terms.intersection(terms_of(each.memory))) for each in learned)),
        relevance=max(map(_relevance, (hit, *learned))),
    )


def _format_quote(quote: _Quote, phrases: Mapping[str, str]) -> str:
    record = quote.hit.record
    name = record.detail.get("name")
    role = str(record.detail.get("role", "learned")) if record.category is Category.TURN else "learned"
    who = one_line(defang(remove_invisible(name)).text) if isinstance(name, str) and name else phrases.get(role, role)
    date = record.stated_at.date().isoformat()
    if record.event_at is not None:
        date = phrases["about"].format(date=date, event_date=record.event_at.date().isoformat())
    return f"- “{quote.text}” ({phrases['source'].format(who=who, date=date, id=record.id)})"


def _split_sentences(text: str) -> list[str]:
    return [each for raw in _SENTENCE.findall(text) if (each := raw.strip()) and _WORD.search(each)]


def _is_command(sentence: str, phrases: Mapping[str, str]) -> bool:
    first = _WORD.search(sentence.lower())
    return first is not None and first.group() in phrases["command_verbs"].split()


def _phrases_for(text: str) -> Mapping[str, str]:
    """Return the phrases in the language of the text, or in English."""
    phrases = _phrases()
    return phrases.get(detect_language(split_words(text)), phrases["en"])


@cache
def _phrases() -> Mapping[str, Mapping[str, str]]:
    return tomllib.loads((files(__package__) / "extractive_answer.toml").read_text(encoding="utf-8"))
