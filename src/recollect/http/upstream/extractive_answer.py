"""What the built-in model says: sentences that were remembered, quoted with their sources, and nothing else."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache
from importlib.resources import files

from recollect.http.upstream.protocol import Known
from recollect.language.small_talk import examined
from recollect.ledger.terms import terms_of
from recollect.model.memory import Category
from recollect.model.result import Hit
from recollect.read.decide import Rule, decide
from recollect.read.defang import defang
from recollect.read.question import look_at
from recollect.read.small_words import language_of, words_of
from recollect.read.visible import one_line, visible

_MOST_QUOTED = 3
_MOST_ABOUT_ONE = 6
_MOST_CHARS = 300
# Beyond this a memory is not read: what it says is at its beginning, or there is a shorter one that says it.
_READ_CHARS = 20_000
# What scores less than this beside the best is about something else.
_BESIDE_BEST = 0.6
_SETTLED_BESIDE_BEST = 0.4
# From here on a hit is more like an answer than not.
_SURE = 0.5
# Two sentences that share so many of their words, and differ in a number, speak of one thing.
_ALIKE = 0.5

_SENTENCE = re.compile(r"[^.!?…\n]*+(?:[.!?…]++(?!\s|$)[^.!?…\n]*+)*+[.!?…]*+")
_ASKED = ("?", "？", "؟")
_WORD = re.compile(r"[\w'’-]+")
_NUMBER = re.compile(r"\d[\d.,:]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Quote:
    """A sentence of a memory: how well it fits, and how many words of the question it shares.

    What is `settled` has one value at a time, and this is the one that holds.
    """

    hit: Hit
    text: str
    shared: int
    relevance: float
    settled: bool

    @property
    def said_at(self) -> datetime:
        return self.hit.record.created_at

    @property
    def terms(self) -> frozenset[str]:
        return frozenset(terms_of(self.text))


def answer_from_memory(question: str, known: Known | None) -> str:
    """What can be said to it without an LLM; it says so, quotes with date, speaker and id, and makes nothing up."""
    question = examined(question)
    say = _phrases_for(question)
    if known is None:
        return f"{say['off']}\n\n{say['no_llm']}"
    return "\n\n".join([*_said(question, known, say), say["no_llm"]])


def _said(question: str, known: Known, say: Mapping[str, str]) -> Iterator[str]:
    asked = [each for each in _sentences(question) if _asks(each, say)]
    told = [each for each in _sentences(question) if not _asks(each, say)]
    decision = decide(question)
    if decision.rule in (Rule.NOTHING_SAID, Rule.SMALL_TALK):
        yield say["hello"]
        return
    if told and not asked and (decision.rule is Rule.GENERAL_KNOWLEDGE or _orders(told[0], say)):
        yield say["beyond"]
        return
    if told and (decision.search or not asked):
        yield say["kept" if known.keeps else "not_kept"]
    if asked:
        yield from _answered(" ".join(asked), known, say)


def _answered(question: str, known: Known, say: Mapping[str, str]) -> Iterator[str]:
    if known.trouble:
        yield say["away"]
        return
    quotes = _chosen(question, known.hits)
    about_all = any(cue in question.lower() for cue in say["about_me"].split("|"))
    if about_all and not any(each.shared for each in quotes):
        quotes = _everything(known.hits)
    if quotes:
        sure = about_all or any(each.relevance >= _SURE or each.shared > 1 for each in quotes)
        yield "\n".join([say["found" if sure else "unsure"], *(_line(each, say) for each in quotes)])
    elif decide(question).rule is Rule.GENERAL_KNOWLEDGE:
        yield say["beyond"]
    else:
        yield say["nothing" if known.keeps else "nothing_unkept"]


def _chosen(question: str, hits: Sequence[Hit]) -> list[_Quote]:
    """The few sentences that answer best; of those that say the same or contradict each other, the newest."""
    quotes = [each for each in _quotes(hits, frozenset(terms_of(question))) if each.relevance or each.shared]
    quotes.sort(key=lambda each: (-each.relevance, -each.said_at.timestamp()))
    if not look_at(question).of_the_past:
        quotes = _newest(quotes)
        # What was said before it changed may fit the question better than what holds now.
        settled = [
            each for each in quotes if each.settled and _is_beside(each, quotes[0], least=_SETTLED_BESIDE_BEST)
        ]
        quotes = settled or quotes
    return [each for each in quotes if each is quotes[0] or _is_beside(each, quotes[0])][:_MOST_QUOTED]


def _is_beside(quote: _Quote, best: _Quote, *, least: float = _BESIDE_BEST) -> bool:
    """Return whether it answers as well; what was said around an answer scores well, too, but shares fewer words."""
    return quote.relevance >= least * best.relevance and quote.shared >= best.shared


def _everything(hits: Sequence[Hit]) -> list[_Quote]:
    """What matters most of all that was given, whatever it is about."""
    quotes = sorted(_quotes(hits, frozenset()), key=lambda each: -each.hit.record.importance)
    return _newest(quotes)[:_MOST_ABOUT_ONE]


def _quotes(hits: Sequence[Hit], wanted: frozenset[str]) -> list[_Quote]:
    """A quotation of each memory that states something; one for what was said and what was learned from it."""
    fitting = [hit for hit in hits if _is_statement(hit)]
    edited = {turn for hit in fitting if hit.record.version > 1 for turn in hit.record.evidence}
    said = {hit.id for hit in fitting} - edited
    learned: dict[str, list[Hit]] = {}
    quotable = []
    for hit in fitting:
        # Words of the user's own are better than what was made of them, unless somebody put that right since.
        sources = said.intersection(hit.record.evidence) if hit.record.version == 1 else ()
        for turn in sources:
            learned.setdefault(turn, []).append(hit)
        if hit.id not in edited and not sources:
            quotable.append(hit)
    made = [_quoted(hit, learned.get(hit.id, ()), wanted) for hit in quotable]
    return [quote for quote in made if quote is not None]


def _newest(quotes: Sequence[_Quote]) -> list[_Quote]:
    """Without what a newer one replaces, each in the place of the best of those it stands for."""
    kept: list[_Quote] = []
    for quote in quotes:
        at = next((at for at, other in enumerate(kept) if _of_one_thing(quote, other)), None)
        if at is None:
            kept.append(quote)
        elif quote.said_at > kept[at].said_at:
            kept[at] = replace(quote, relevance=kept[at].relevance)
    return kept


def _of_one_thing(one: _Quote, other: _Quote) -> bool:
    """Whether they cannot both hold now: one key, the same words, or the same words around another number."""
    a, b = one.hit.record, other.hit.record
    if a.key and (a.category, a.key) == (b.category, b.key):
        return True
    older, newer = sorted((one, other), key=lambda each: each.said_at)
    if one.hit.score == other.hit.score and older.hit.scores.get("replaced") and newer.hit.scores.get("newest"):
        # Search put the newer one before the one it replaces.
        return True
    if a.detail.get("role", "user") != b.detail.get("role", "user"):
        return False
    numbers = [frozenset(each.rstrip(".,:") for each in _NUMBER.findall(quote.text)) for quote in (one, other)]
    words = [frozenset(each for each in quote.terms if not each[0].isdigit()) for quote in (one, other)]
    common = len(words[0] & words[1]) / max(1, min(map(len, words)))
    if all(numbers) and numbers[0] != numbers[1]:
        return common >= _ALIKE
    return numbers[0] == numbers[1] and words[0] == words[1]


def _relevance(hit: Hit) -> float:
    """How well it fits; 0 for what is given whatever the question."""
    return hit.score if "relevance" in hit.scores else 0.0


def _is_statement(hit: Hit) -> bool:
    """Whether it can be quoted as something that is so: no question, and none of our own answers."""
    record = hit.record
    if record.category is Category.TURN and record.detail.get("role") not in ("user", "assistant"):
        return False
    return not any(say["no_llm"] in record.content for say in _phrases().values())


def _quoted(hit: Hit, learned: Sequence[Hit], wanted: frozenset[str]) -> _Quote | None:
    """The sentence that shares most with the question, the first of them; None where it only asks.

    `learned` is what was learned from it: that counts for how well it fits.
    """
    text = visible(hit.record.content[:_READ_CHARS])
    say = _phrases_for(text)
    is_said = hit.record.category is Category.TURN
    sentences = [each for each in _sentences(text) if not (_asks(each, say) if is_said else each.endswith(_ASKED))]
    if not sentences:
        return None
    shared = [len(wanted.intersection(terms_of(each))) for each in sentences]
    best = sentences[shared.index(max(shared))]
    whole = " ".join(sentences)
    words = whole if len(whole) <= _MOST_CHARS else best
    words = words if len(words) <= _MOST_CHARS else words[:_MOST_CHARS].rpartition(" ")[0] + " …"
    return _Quote(
        hit=hit,
        text=one_line(defang(words).text),
        shared=max(*shared, 0, *(len(wanted.intersection(terms_of(each.memory))) for each in learned)),
        relevance=max(map(_relevance, (hit, *learned))),
        settled=any(each.record.key and _relevance(each) for each in (hit, *learned)),
    )


def _line(quote: _Quote, say: Mapping[str, str]) -> str:
    record = quote.hit.record
    name = record.detail.get("name")
    role = str(record.detail.get("role", "learned")) if record.category is Category.TURN else "learned"
    who = one_line(defang(visible(name)).text) if isinstance(name, str) and name else say.get(role, role)
    date = (record.occurred_at or record.created_at).date().isoformat()
    return f"- “{quote.text}” ({say['source'].format(who=who, date=date, id=record.id)})"


def _sentences(text: str) -> list[str]:
    return [each for found in _SENTENCE.findall(text) if (each := found.strip()) and _WORD.search(each)]


def _asks(sentence: str, say: Mapping[str, str]) -> bool:
    if sentence.endswith(_ASKED) or sentence.startswith("¿"):
        return True
    words = [word.replace("’", "'") for word in _WORD.findall(sentence.lower())]
    return any(words[: len(opening)] == opening for opening in _openings(say["asks"]))


def _orders(sentence: str, say: Mapping[str, str]) -> bool:
    first = _WORD.search(sentence.lower())
    return first is not None and first.group() in say["does"].split()


@cache
def _openings(listed: str) -> list[list[str]]:
    return [opening.split("|") for opening in listed.split()]


def _phrases_for(text: str) -> Mapping[str, str]:
    """Return the phrases in the language of the text, or in English."""
    phrases = _phrases()
    return phrases.get(language_of(words_of(text)), phrases["en"])


@cache
def _phrases() -> Mapping[str, Mapping[str, str]]:
    return tomllib.loads((files(__package__) / "extractive.toml").read_text(encoding="utf-8"))
