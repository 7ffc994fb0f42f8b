"""Select statements worth remembering without an LLM: trained linear models and a table of keys.

The first model cuts the user's sentences into statements, the second scores each statement with the probability that
it is worth remembering, its category, and whether it corrects or ends something. A third is for tasks, such as talk
with a coding agent: it scores the sentences of user and assistant that state a decision, a convention, a command that
works, or a failure and its fix. They are trained by `python -m evals.train_selector` and
`python -m evals.train_task_selector`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from recollect.model.memory import Category, MemoryType, Trust
from recollect.model.times import now
from recollect.model.turn import Role, Turn
from recollect.models.linear_text import LinearTextModel, TextInput, hash_features, hash_ngrams, load_model, tokenize
from recollect.models.static_embedder import StaticEmbedder
from recollect.quotes.pasted_instructions import is_pasted_sentence
from recollect.quotes.quoted_text import ELIDED
from recollect.read.question_model import is_question
from recollect.text.instruction_rule import review_reason
from recollect.text.statement_dates import PAST_TENSE, find_date, insert_date
from recollect.write.key_patterns import declines_memory, explicit_request, find_key
from recollect.write.operations import ExtractedFact
from recollect.write.sentences import Sentence, split_sentences

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]


CATEGORIES = ("identity", "preference", "constraint", "instruction", "fact", "event", "procedure")
CHANGES = ("correction", "ended")
OUTPUTS = ("keep", *CATEGORIES, *CHANGES)
CUT_BUCKETS = 1 << 15
BUCKETS = 1 << 16
# Minimum probabilities of a cut, of a statement to keep, and of a correction or end; chosen by cross-validation.
CUT_THRESHOLD = 0.4
KEEP_THRESHOLD = 0.45
CHANGE_THRESHOLD = 0.6
# Minimum probabilities of a sentence in a task, by role, and of other statements of the user in one.
TASK_THRESHOLDS = {Role.USER: 0.5, Role.ASSISTANT: 0.4}
_PERSONAL_THRESHOLD = 0.85
# More statements than this in one message come from a pasted list.
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
# Features of the length of a message are capped at these.
_MANY_SENTENCES, _LONG_CHARS = 12, 1_500

SELECTOR_SOURCE = "selector"
ASSISTANT_SOURCE = "assistant"
# The maximum confidence of a statement of an assistant.
MAX_CONFIDENCE_ASSISTANT = 0.6
# More outcomes than this in one answer are a report of details.
_MAX_OUTCOMES = 8
# Adjacent sentences, such as a cause and its fix, become one memory up to this length.
_MAX_OUTCOME_CHARS = 400
_IMPORTANCE = {
    "identity": 0.8, "constraint": 0.8, "instruction": 0.7, "preference": 0.6, "fact": 0.5, "event": 0.5,
    "procedure": 0.6,
}  # fmt: skip
_INSTRUCTIONS = ("instruction", "procedure")
# A statement that the user asks to remember is kept whatever its score.
_REQUESTED_CONFIDENCE = 0.9
# Statements that are questions with at least this probability are not kept.
_QUESTION_PROBABILITY = 0.8
# A statement with a key needs a lower probability.
_KEYED_THRESHOLD = 0.2


@dataclass(frozen=True, slots=True)
class StatementSpan:
    """A statement, its sentence, the tokens of the sentence, and its first and last token (exclusive)."""

    text: str
    sentence: Sentence
    tokens: tuple[str, ...]
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class SelectedStatement:
    """A scored statement: the probability that it is worth remembering, its category, and its change.

    `change` is "new", "correction" or "ended".
    """

    text: str
    sentence: str
    confidence: float
    category: str
    change: str


def select_facts(turns: Sequence[Turn], *, task: bool = False) -> list[ExtractedFact]:
    """Return the facts in the user's turns; in a task, also outcomes that the assistant reports, with low trust."""
    has_several_speakers = len({turn.name for turn in turns if turn.role is Role.USER}) > 1
    facts: dict[str, ExtractedFact] = {}
    is_declined = False
    for turn in turns:
        if turn.role is Role.USER:
            is_declined = declines_memory(turn.content)
        if is_declined or (turn.role is Role.ASSISTANT and not task):
            continue
        name = turn.name if has_several_speakers else None
        found = _turn_facts(turn, name=name, task=task) if turn.role is Role.USER else _turn_outcomes(turn)
        for fact in found:
            facts.setdefault(fact.content.casefold(), fact)
    return list(facts.values())


def contain_outcomes(turns: Sequence[Turn]) -> bool:
    """Return whether an assistant reports an outcome in the turns."""
    return any(turn.role is Role.ASSISTANT and next(_turn_outcomes(turn), None) is not None for turn in turns)


def may_contain_facts(turns: Sequence[Turn], *, threshold: float) -> bool:
    """Return whether a statement of the user may be worth remembering; if not, the LLM need not be asked."""
    for turn in turns:
        if turn.role is not Role.USER:
            continue
        scored = score_statements(turn.content)
        # A message without statements, such as one that is all quotation, is for the LLM to judge.
        if not scored or any(each.confidence >= threshold or find_key(each.text) for each in scored):
            return True
        if any(explicit_request(each.text) for each in split_sentences(turn.content)):
            return True
    return False


def _turn_facts(turn: Turn, *, name: str | None, task: bool) -> Iterator[ExtractedFact]:
    requests = [request for sentence in split_sentences(turn.content) if (request := explicit_request(sentence.text))]
    for request in requests:
        yield build_fact(SelectedStatement(request, request, _REQUESTED_CONFIDENCE, "fact", "new"), turn, name=name)
    statements = [each for each in score_statements(turn.content) if _passes_threshold(each)]
    if task:
        statements = _task_statements(turn.content, statements)
    chosen = [each for each in statements if not _is_pasted_instruction(each, turn.content)]
    for selected in chosen[:MAX_STATEMENTS]:
        if not any(selected.text in request for request in requests):
            yield build_fact(selected, turn, name=name)


def _task_statements(text: str, selected: Sequence[SelectedStatement]) -> list[SelectedStatement]:
    """Return the sentences that a task needs, and of the others the selected statements that are surely personal."""
    author_sentences = split_sentences(text)
    sentences = [
        (statement, probability)
        for statement, probability in score_task(author_sentences, Role.USER)
        if probability >= TASK_THRESHOLDS[Role.USER]
        and not explicit_request(statement.sentence.text)
        and not is_question(statement.text, min_probability=_QUESTION_PROBABILITY)
    ]
    inputs = build_inputs(text, author_sentences, [statement for statement, _ in sentences]) if sentences else []
    chosen = [
        replace(_selected(statement, row), confidence=probability)
        for (statement, probability), row in zip(sentences, _selector().logits(inputs), strict=True)
    ]
    covered = {each.sentence for each in chosen}
    return chosen + [
        each
        for each in selected
        if each.sentence not in covered and (each.confidence >= _PERSONAL_THRESHOLD or find_key(each.text))
    ]


def _turn_outcomes(turn: Turn) -> Iterator[ExtractedFact]:
    """Yield the outcomes that an assistant's turn reports; adjacent sentences are one outcome."""
    joined: list[list[tuple[str, float]]] = []
    is_adjacent = False
    for statement, probability in score_task(split_sentences(turn.content), Role.ASSISTANT):
        text = statement.text
        if probability < TASK_THRESHOLDS[Role.ASSISTANT]:
            is_adjacent = False
            continue
        if is_adjacent and sum(len(each) for each, _ in joined[-1]) + len(text) <= _MAX_OUTCOME_CHARS:
            joined[-1].append((text, probability))
        else:
            joined.append([(text, probability)])
        is_adjacent = True
    for outcome in joined[:_MAX_OUTCOMES]:
        content = ". ".join(text for text, _ in outcome)
        selected = SelectedStatement(content, content, max(odds for _, odds in outcome), "fact", "new")
        fact = build_fact(selected, turn, name=turn.name or "Assistant")
        yield replace(
            fact,
            confidence=min(fact.confidence, MAX_CONFIDENCE_ASSISTANT),
            trust=Trust.LOW,
            correction=False,
            source=ASSISTANT_SOURCE,
            review=review_reason(Trust.LOW, fact.category, fact.memory_type, content),
        )


def _passes_threshold(selected: SelectedStatement) -> bool:
    threshold = _KEYED_THRESHOLD if find_key(selected.text) else KEEP_THRESHOLD
    if selected.confidence < threshold or explicit_request(selected.sentence):
        return False
    # "when is standup": a question about a fact resembles the fact.
    return not is_question(selected.text, min_probability=_QUESTION_PROBABILITY)


def _is_pasted_instruction(selected: SelectedStatement, text: str) -> bool:
    return selected.category in _INSTRUCTIONS and is_pasted_sentence(text, selected.sentence)


def build_fact(selected: SelectedStatement, turn: Turn, *, name: str | None = None) -> ExtractedFact:
    """Return the fact of a statement, with its key, if any, and with relative dates resolved."""
    at = min(turn.said_at, now())
    keyed = find_key(selected.text) if name is None and selected.change != "ended" else None
    category = keyed.category if keyed else selected.category
    day = find_date(selected.text, at=at, ahead=not PAST_TENSE.search(selected.text))
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


def score_statements(text: str) -> list[SelectedStatement]:
    """Return every statement of a message, in order, with its scores."""
    author_sentences = split_sentences(text)
    if not (statements := [statement for sentence in author_sentences for statement in cut(sentence)]):
        return []
    logits = _selector().logits(build_inputs(text, author_sentences, statements))
    return [_selected(statement, row) for statement, row in zip(statements, logits, strict=True)]


def score_task(sentences: Sequence[Sentence], role: Role) -> list[tuple[StatementSpan, float]]:
    """Return the sentences of a message, in order, each with the probability that a task needs it later."""
    statements, inputs = task_inputs(sentences)
    logits = _task_model().logits(inputs)[:, _task_model().outputs.index(role)]
    return [(each, _probability(logit)) for each, logit in zip(statements, logits.tolist(), strict=True)]


def task_inputs(sentences: Sequence[Sentence]) -> tuple[list[StatementSpan], list[TextInput]]:
    """Return each sentence with words as one statement, and its features.

    Of its context they contain the sentence before it alone: an answer may be short or long.
    """
    statements: list[StatementSpan] = []
    inputs: list[TextInput] = []
    for at, sentence in enumerate(sentences):
        spans = token_spans(sentence.text)
        tokens = [fold_token(sentence.text[start:end]) for start, end in spans]
        if whole := statements_between(sentence, spans, tokens, []):
            statements += whole
            inputs += build_inputs(sentence.text, sentences[max(0, at - 1) : at + 1], whole)
    return statements, inputs


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
    """Split a sentence into statements at the boundaries that the cutting model predicts."""
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
    """Return the statements between the cuts, without conjunctions and punctuation around them."""
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
    """Return the start and end of each word and punctuation mark of a text."""
    return [match.span() for match in _TOKEN.finditer(text)]


def fold_token(token: str) -> str:
    """Return a token in lower case with digits as 0, as in features."""
    return re.sub(r"\d", "0", token.casefold().replace("’", "'"))


def cut_input(tokens: Sequence[str], at: int) -> TextInput:
    """Return the features of the gap before token `at`: the tokens around it and the distances to both ends."""
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
            *(Sentence(statement.text).is_question, statement.sentence.is_question),
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


@cache
def _cutter() -> LinearTextModel:
    return load_model(_FOLDER / "selector_cuts.npz")


@cache
def _selector() -> LinearTextModel:
    return load_model(_FOLDER / "selector.npz")


@cache
def _task_model() -> LinearTextModel:
    return load_model(_FOLDER / "selector_task.npz")


@cache
def _embedder() -> StaticEmbedder:
    return StaticEmbedder()
