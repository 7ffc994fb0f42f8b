"""Keys for selected statements: a small table of patterns for traits that have one value at a time."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from recollect.model.extracted_fact import ExtractedFact
from recollect.model.memory import Category, MemoryType
from recollect.model.times import now
from recollect.model.turn import Role, Turn
from recollect.models.linear_text import LinearTextModel, TextInput, hash_features, hash_ngrams, load_model, tokenize
from recollect.models.static_embedder import StaticEmbedder
from recollect.text.statement_dates import find_date, insert_date
from recollect.write.quoted_text import ELIDED
from recollect.write.sentences import Sentence, split_sentences

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]


MAX_KEYED_VALUE_CHARS = 60


@dataclass(frozen=True, slots=True)
class KeyedValue:
    """A key with its value, and the category of such statements."""

    key: str
    value: str
    category: str


@dataclass(frozen=True, slots=True)
class _KeyPattern:
    key: str
    category: str
    capital: bool
    expressions: tuple[re.Pattern[str], ...]


@dataclass(frozen=True, slots=True)
class _KeyPatterns:
    patterns: tuple[_KeyPattern, ...]
    value_end: re.Pattern[str]
    not_value: re.Pattern[str]
    keep: re.Pattern[str]
    skip: re.Pattern[str]


def find_key(statement: str) -> KeyedValue | None:
    """Return the key and the value that a statement gives, if it matches one of the patterns."""
    table = _key_patterns()
    for pattern in table.patterns:
        for expression in pattern.expressions:
            if (match := expression.match(statement)) and (value := _clean_value(match["value"], pattern, table)):
                return KeyedValue(pattern.key, value, pattern.category)
    return None


def explicit_request(sentence: str) -> str:
    """Return what follows an explicit "remember that"; empty if the sentence has none."""
    match = _key_patterns().keep.match(sentence)
    return sentence[match.end() :].strip(" .") if match else ""


def declines_memory(text: str) -> bool:
    """Return whether the user asks not to have the message remembered."""
    return _key_patterns().skip.search(text.replace("’", "'")) is not None


def _clean_value(text: str, pattern: _KeyPattern, table: _KeyPatterns) -> str:
    end = table.value_end.search(text)
    value = (text[: end.start()] if end else text).strip(" .!,;:'\"")
    if not value or len(value) > MAX_KEYED_VALUE_CHARS or table.not_value.match(value):
        return ""
    # A place or a company has a name; people who write in lower case name it in one or two words.
    return (
        value if not pattern.capital or value[0].isupper() or len(value.split()) <= 2 or not value.isascii() else ""
    )


@cache
def _key_patterns() -> _KeyPatterns:
    table = tomllib.loads((files(__package__) / "key_patterns.toml").read_text(encoding="utf-8"))
    lead_in = "".join(table["lead_in"].split("\n"))

    def anchored(expressions: list[str]) -> tuple[re.Pattern[str], ...]:
        return tuple(re.compile(lead_in + expression, re.IGNORECASE) for expression in expressions)

    return _KeyPatterns(
        patterns=tuple(
            _KeyPattern(each["key"], each["category"], each.get("capital", False), anchored(each["match"]))
            for each in table["pattern"]
        ),
        value_end=re.compile("".join(table["value_end"].split("\n")), re.IGNORECASE),
        not_value=re.compile("".join(table["not_value"].split("\n")), re.IGNORECASE),
        keep=re.compile(lead_in + "(?:" + "|".join(table["keep"]["match"]) + ")", re.IGNORECASE),
        skip=re.compile("|".join(table["skip"]["search"]), re.IGNORECASE),
    )


CATEGORIES = ("identity", "preference", "constraint", "instruction", "fact", "event", "procedure")
CHANGES = ("correction", "ended")
OUTPUTS = ("keep", *CATEGORIES, *CHANGES)
CUT_BUCKETS = 1 << 15
BUCKETS = 1 << 16
# Probabilities from which on a sentence is cut and a statement kept; chosen by cross-validation when training.
CUT_THRESHOLD = 0.4
KEEP_THRESHOLD = 0.53
CHANGE_THRESHOLD = 0.6
# More statements than this in one message come from a list that was pasted.
MAX_STATEMENTS = 40

_FOLDER = Path(__file__).parent
_HAN = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_TOKEN = re.compile(rf"[{_HAN}]|[^\W{_HAN}]+(?:['’]\w+)*|[^\w\s]")
_FIRST_PERSON = re.compile(
    r"\b(?:i|i'm|i've|im|my|me|we|our|us|ich|mein\w*|wir|unser\w*|yo|mi|mis|je|j|mon|ma|mes|nous|io|mio|mia|eu|meu|minha|ik"
    r"|mijn)\b|我|私|僕",
    re.IGNORECASE,
)
_OPENING_MARKS = '$€£¥#@"“(„«'
_TRAILING = ",;:.-–—"
_CONJUNCTIONS = frozenset("and but so und aber y pero et mais e ma mas en maar".split())
_CONTEXT_TOKENS = 6
# Beyond these, a longer message says nothing more about its statements.
_MANY_SENTENCES, _LONG_CHARS = 12, 1_500


@dataclass(frozen=True, slots=True)
class StatementSpan:
    """A stretch of a message, with its place in its sentence and the sentence's place in the message."""

    text: str
    sentence: Sentence
    tokens: tuple[str, ...]
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class SelectedStatement:
    """A statement worth remembering, how sure that is, its category, and "new", "correction" or "ended"."""

    text: str
    sentence: str
    confidence: float
    category: str
    change: str


def score_statements(text: str) -> list[SelectedStatement]:
    """Return every statement of a message, in order, with how likely it is worth remembering."""
    author_sentences = split_sentences(text)
    if not (statements := [statement for sentence in author_sentences for statement in cut(sentence)]):
        return []
    logits = _selector().logits(build_inputs(text, author_sentences, statements))
    return [_selected(statement, row) for statement, row in zip(statements, logits, strict=True)]


def _selected(statement: StatementSpan, logits: Floats) -> SelectedStatement:
    odds = dict(zip(OUTPUTS, logits.tolist(), strict=True))
    change = max(CHANGES, key=lambda name: odds[name])
    return SelectedStatement(
        text=statement.text,
        sentence=statement.sentence.text,
        confidence=_probability(odds["keep"]),
        category=max(CATEGORIES, key=lambda name: odds[name]),
        change=change if _probability(odds[change]) >= CHANGE_THRESHOLD else "new",
    )


def _probability(logit: float) -> float:
    return float(1 / (1 + np.exp(-logit)))


# Cutting sentences -------------------------------------------------------------------------------------------------


def cut(sentence: Sentence) -> list[StatementSpan]:
    """Split a sentence into statements where the cutting model sees a boundary."""
    spans = token_spans(sentence.text)
    tokens = [fold_token(sentence.text[start:end]) for start, end in spans]
    if len(tokens) < 2:
        return statements_between(sentence, spans, tokens, [])
    logits = _cutter().logits([cut_input(tokens, at) for at in range(1, len(tokens))])[:, 0]
    cuts = [at for at, logit in enumerate(logits.tolist(), 1) if _probability(logit) >= CUT_THRESHOLD]
    cuts = [at for at in cuts if not (spans[at - 1][1] == spans[at][0] and "-" in tokens[at - 1 : at + 1])]
    return statements_between(sentence, spans, tokens, cuts)


def statements_between(
    sentence: Sentence, spans: Sequence[tuple[int, int]], tokens: Sequence[str], cuts: Sequence[int]
) -> list[StatementSpan]:
    """Return the stretches between the cuts, without punctuation around them."""
    statements: list[StatementSpan] = []
    edges = [0, *cuts, len(tokens)]
    for first, last in pairwise(edges):
        start, end = first, last
        while start < end and not tokens[start][0].isalnum() and tokens[start] not in _OPENING_MARKS:
            start += 1
        while start < end - 1 and tokens[start] in _CONJUNCTIONS:
            start += 1
        while end > start and (tokens[end - 1] in _TRAILING or tokens[end - 1] in _CONJUNCTIONS):
            end -= 1
        if any(token[0].isalnum() for token in tokens[start:end]):
            text = sentence.text[spans[start][0] : spans[end - 1][1]]
            statements.append(StatementSpan(text, sentence, tuple(tokens), start, end))
    return statements


def token_spans(text: str) -> list[tuple[int, int]]:
    """Return where the words and marks of a text stand."""
    return [match.span() for match in _TOKEN.finditer(text)]


def fold_token(token: str) -> str:
    """Return a token as features see it."""
    return re.sub(r"\d", "0", token.casefold().replace("’", "'"))


def cut_input(tokens: Sequence[str], at: int) -> TextInput:
    """Return the features of the gap before token `at`: the words around it and how far the ends are."""
    count = len(tokens)
    around = {
        off: tokens[at + off] if 0 <= at + off < count else "\x02" if at + off < 0 else "\x03" for off in range(-4, 4)
    }
    left, right = around[-1], around[0]
    features = [f"{off}:{token}" for off, token in around.items()]
    features += [
        f"a:{left}|{right}",
        f"b:{around[-2]}|{left}",
        f"c:{right}|{around[1]}",
        f"d:{left}|{right}|{around[1]}",
        f"e:{around[-2]}|{left}|{right}",
        f"f:{right}|{around[1]}|{around[2]}",
        f"L{min(at, 8)}",
        f"R{min(count - at, 8)}",
        f"p:{left if not left[:1].isalnum() else 'w'}|{right if not right[:1].isalnum() else 'w'}",
        f"q:{tokens[-1]}|{right}",
    ]
    return TextInput(hash_features(features, CUT_BUCKETS), np.zeros(0, np.float32))


# Scoring statements ------------------------------------------------------------------------------------------------


def build_inputs(
    text: str, author_sentences: Sequence[Sentence], statements: Sequence[StatementSpan]
) -> list[TextInput]:
    """Return the features of each statement of a message."""
    embedded = _embedder().encode([*(each.text for each in statements), *(each.text for each in author_sentences)])
    vectors = embedded[: len(statements)]
    sentence_vectors = dict(zip(map(id, author_sentences), embedded[len(statements) :], strict=True))
    places = {id(each): at for at, each in enumerate(author_sentences)}
    message = _message_features(text)
    first = tokenize(author_sentences[0].text)[:8]
    inputs: list[TextInput] = []
    for statement, vector in zip(statements, vectors, strict=True):
        place = places[id(statement.sentence)]
        before = tokenize(author_sentences[place - 1].text)[-10:] if place else []
        tokens, start, end = statement.tokens, statement.start, statement.end
        buckets = {
            *hash_ngrams(tokenize(statement.text), BUCKETS),
            *hash_ngrams(tokens[max(0, start - _CONTEXT_TOKENS) : start], BUCKETS, prefix="l:", words=2, chars=0),
            *hash_ngrams(tokens[end : end + _CONTEXT_TOKENS], BUCKETS, prefix="r:", words=2, chars=0),
            *hash_ngrams(before, BUCKETS, prefix="p:", words=2, chars=0),
            *(hash_ngrams(first, BUCKETS, prefix="f:", words=2, chars=0) if place else ()),
        }
        after = author_sentences[place + 1].is_question if place + 1 < len(author_sentences) else False
        named = (
            *(_is_question(statement.text), statement.sentence.is_question),
            *(bool(_FIRST_PERSON.search(each)) for each in (statement.text, statement.sentence.text)),
            *(np.log1p(end - start) - 2, start == 0, end >= len(tokens) - 1, np.log1p(len(tokens)) - 2.5),
            *(place == 0, place == len(author_sentences) - 1, np.log1p(min(len(author_sentences), _MANY_SENTENCES))),
            *(bool(statement.sentence.item), ELIDED in statement.sentence.text),
            *(any(map(str.isdigit, statement.text)), after),
            *message,
        )
        dense = np.concatenate([vector * 2, sentence_vectors[id(statement.sentence)], np.array(named, np.float32)])
        inputs.append(TextInput(np.array(sorted(buckets), np.int64), dense.astype(np.float32)))
    return inputs


def _message_features(text: str) -> tuple[float, ...]:
    return (
        float(np.log1p(min(len(text), _LONG_CHARS)) - 4),
        float(text.count("\n") > 2),
        float('"' in text or "“" in text),
        float(":" in text),
    )


def _is_question(text: str) -> bool:
    return text.rstrip(" \"'”’)]").endswith(("?", "？"))


@cache
def _cutter() -> LinearTextModel:
    return load_model(_FOLDER / "selector_cuts.npz")


@cache
def _selector() -> LinearTextModel:
    return load_model(_FOLDER / "selector.npz")


@cache
def _embedder() -> StaticEmbedder:
    return StaticEmbedder()


SELECTOR_SOURCE = "selector"
_IMPORTANCE = {
    "identity": 0.8, "constraint": 0.8, "instruction": 0.7, "preference": 0.6, "fact": 0.5, "event": 0.5,
    "procedure": 0.6,
}  # fmt: skip
# A day without a year lies ahead, unless something happened on it.
_PAST_TENSE = re.compile(
    r"\b(?:was|were|had|went|got|did|saw|met|bought|\w{3,}ed|yesterday|ago|last|since|gestern|war|hatte|wurde|letzt\w+|ge\w+t|ayer|fui"
    r"|estuve|pasad[oa]|hier|était|dernier|dernière)\b|昨|上[周个]|了",
    re.IGNORECASE,
)
# What the user asks to have remembered is kept, however unlikely the selector finds it.
_REQUESTED_CONFIDENCE = 0.9
# What has the form of a keyed fact needs less support from the selector.
_KEYED_THRESHOLD = 0.2


def select_facts(turns: Sequence[Turn]) -> list[ExtractedFact]:
    """Return what the user's turns state that is worth remembering; an assistant's turns state nothing."""
    has_several_speakers = len({turn.name for turn in turns if turn.role is Role.USER}) > 1
    facts: dict[str, ExtractedFact] = {}
    for turn in turns:
        if turn.role is not Role.USER or declines_memory(turn.content):
            continue
        for fact in _turn_facts(turn, name=turn.name if has_several_speakers else None):
            facts.setdefault(fact.content.casefold(), fact)
    return list(facts.values())


def may_contain_facts(turns: Sequence[Turn], *, threshold: float) -> bool:
    """Return whether some statement of the user's may be worth remembering: the LLM need not be asked otherwise."""
    for turn in turns:
        if turn.role is not Role.USER:
            continue
        scored = score_statements(turn.content)
        # What cannot be scored, such as a message that is all quotation, is for the LLM to judge.
        if not scored or any(each.confidence >= threshold or find_key(each.text) for each in scored):
            return True
        if any(explicit_request(each.text) for each in split_sentences(turn.content)):
            return True
    return False


def _turn_facts(turn: Turn, *, name: str | None) -> Iterator[ExtractedFact]:
    requests = [request for sentence in split_sentences(turn.content) if (request := explicit_request(sentence.text))]
    for request in requests:
        yield build_fact(SelectedStatement(request, request, _REQUESTED_CONFIDENCE, "fact", "new"), turn, name=name)
    chosen = [each for each in score_statements(turn.content) if _passes_threshold(each)]
    for selected in chosen[:MAX_STATEMENTS]:
        if not any(selected.text in request for request in requests):
            yield build_fact(selected, turn, name=name)


def _passes_threshold(selected: SelectedStatement) -> bool:
    threshold = _KEYED_THRESHOLD if find_key(selected.text) else KEEP_THRESHOLD
    return selected.confidence >= threshold and not explicit_request(selected.sentence)


def build_fact(selected: SelectedStatement, turn: Turn, *, name: str | None = None) -> ExtractedFact:
    """Return a selected statement as a fact, with its key if it has one and its date resolved."""
    at = min(turn.said_at, now())
    keyed = find_key(selected.text) if name is None and selected.change != "ended" else None
    category = keyed.category if keyed else selected.category
    day = find_date(selected.text, at=at, ahead=not _PAST_TENSE.search(selected.text))
    content = insert_date(selected.text, day) if day else selected.text
    content = f"{content[:1].upper()}{content[1:]}"
    return ExtractedFact(
        content=f"{name}: {content}" if name else content,
        category=Category.FACT if category == "procedure" else Category(category),
        type=MemoryType.PROCEDURAL if category == "procedure" else None,
        key=keyed.key if keyed else None,
        value=keyed.value if keyed else None,
        importance=_IMPORTANCE[category],
        confidence=round(selected.confidence, 2),
        said_at=turn.said_at,
        occurred_at=day.start if day else None,
        evidence=(turn.id,),
        correction=selected.change == "correction" or keyed is not None,
        source=SELECTOR_SOURCE,
    )
