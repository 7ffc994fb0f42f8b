"""Extract facts from turns with one LLM call, large or small, in a mode for chats, documents, tasks or profiles."""

from __future__ import annotations

import json
import logging
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

from recollect.errors import InvalidInput, ModelUnavailable, RecollectError
from recollect.frozen_dataclass import frozen_dataclass
from recollect.lazy_pattern import lazy_pattern
from recollect.ledger.tokenizer import terms_of
from recollect.model.memory import Category, MemoryRecord, Trust
from recollect.model.turn import Role, Turn
from recollect.models.chat import Chat, ChatMessage
from recollect.prompts import prompt
from recollect.prompts.rendering import json_line, max_chars_per_turn, new_delimiter, shorten
from recollect.write.ask_llm import NO_COST, LlmAnswer, LlmCost, ask_for_json
from recollect.write.batch import Batch
from recollect.write.check import check_operations
from recollect.write.operations import SCHEMA, ExtractedFact, Operation, OperationParser, memory_rows, turn_row
from recollect.write.select import SelectedStatement, build_fact, score_statements


@frozen_dataclass
class ExtractionMode:
    """The mode's part of the prompt, and the categories it stores (empty: all)."""

    text: str
    categories: frozenset[Category]


@cache
def load_modes() -> dict[str, ExtractionMode]:
    """Return the interaction modes by name."""
    table = tomllib.loads(Path(__file__).with_name("modes.toml").read_text(encoding="utf-8"))
    return {
        name: ExtractionMode(each["text"].strip(), frozenset(map(Category, each.get("categories", ()))))
        for name, each in table.items()
    }


def get_extraction_mode(name: str) -> ExtractionMode:
    """Return the mode of that name, or raise InvalidInput."""
    if name not in load_modes():
        raise InvalidInput(f"`mode` must be one of {', '.join(load_modes())}, got {name!r}")
    return load_modes()[name]


MAX_CONTEXT_CHARS = 400
MAX_MEMORY_CHARS = 300
MAX_REASONS = 50


@frozen_dataclass(kw_only=True)
class ExtractionLimits:
    """Minimum scores and maximum number of the facts of a batch, and limits of the LLM call.

    `default_importance` is that of a fact without one.
    """

    default_importance: float = 0.5
    min_importance: float = 0.2
    min_confidence: float = 0.4
    user_only: bool = False
    max_facts: int = 50
    max_tokens: int = 2048
    timeout_s: float | None = None


@frozen_dataclass(kw_only=True)
class Extraction:
    """Extracted facts, the reasons why operations were not used, and the cost; `error` if no answer was usable."""

    facts: tuple[ExtractedFact, ...] = ()
    rejected: tuple[str, ...] = ()
    cost: LlmCost = NO_COST
    prompt_digest: str = ""
    error: RecollectError | None = None


@frozen_dataclass
class ExtractionPrompt:
    """The text for the model, its digest, and the ids of the turns that were shortened."""

    text: str
    digest: str
    shortened: tuple[str, ...]


async def extract(batch: Batch, *, chat: Chat, mode: str, now: datetime, limits: ExtractionLimits) -> Extraction:
    """Ask the model for operations on the memories, and return the checked facts."""
    style = get_extraction_mode(mode)
    if not batch.turns:
        return Extraction(cost=LlmCost(model=chat.model))
    question = build_prompt(batch.turns, context=batch.context, memories=batch.memories, mode=style)
    answer: LlmAnswer[tuple[Operation, ...]] = await ask_for_json(
        chat,
        question.text,
        schema=SCHEMA,
        check=OperationParser(len(batch.turns), len(batch.memories), limits.default_importance).parse,
        max_tokens=limits.max_tokens,
        timeout_s=limits.timeout_s,
    )
    if answer.error is not None:
        return Extraction(cost=answer.cost, error=answer.error)
    facts, rejected = check_operations(answer.value or (), batch, now=now)
    facts, below_limits = _filter_facts([replace(each, model=answer.cost.model) for each in facts], style, limits)
    reasons = [f"only the beginning and the end of turn {id} were read" for id in question.shortened]
    reasons += [*(f"salvaged: {each}" for each in answer.complaints), *rejected, *below_limits]
    if len(reasons) > MAX_REASONS:
        reasons = [*reasons[:MAX_REASONS], f"and {len(reasons) - MAX_REASONS} more"]
    return Extraction(facts=tuple(facts), rejected=tuple(reasons), cost=answer.cost, prompt_digest=question.digest)


def build_prompt(
    turns: Sequence[Turn], *, context: Sequence[Turn], memories: Sequence[MemoryRecord], mode: ExtractionMode
) -> ExtractionPrompt:
    """Fill the prompt; everything before the data is the same for every call, so that providers can cache it."""
    share = max_chars_per_turn(len(turns))
    lines = [json_line({"before": True, **turn_row(turn, MAX_CONTEXT_CHARS)}) for turn in context]
    lines += [json_line({"line": number, **turn_row(turn, share)}) for number, turn in enumerate(turns, 1)]
    template = prompt("extract")
    text = template.fill(
        style=mode.text,
        fence=new_delimiter(),
        memories=memory_rows(memories, MAX_MEMORY_CHARS, with_keys=True),
        lines="\n".join(lines),
    )
    digest = blake2b(f"{template.digest} {mode.text}".encode(), digest_size=8).hexdigest()
    return ExtractionPrompt(text, digest, tuple(turn.id for turn in turns if len(turn.content) > share))


def _filter_facts(
    facts: Sequence[ExtractedFact], mode: ExtractionMode, limits: ExtractionLimits
) -> tuple[list[ExtractedFact], list[str]]:
    """Return the facts that the mode and the limits admit, and the reasons why others are dropped."""
    accepted: list[ExtractedFact] = []
    reasons: list[str] = []
    for fact in facts:
        if fact.target is None and fact.importance < limits.min_importance:
            reason = f"importance {fact.importance:g} is below {limits.min_importance:g}"
        elif fact.target is None and fact.confidence < limits.min_confidence and not fact.doubts:
            reason = f"confidence {fact.confidence:g} is below {limits.min_confidence:g}"
        elif limits.user_only and fact.trust is not Trust.HIGH:
            reason = "not a statement of the user"
        elif mode.categories and fact.category not in mode.categories:
            reason = f"category {fact.category} is not stored in this mode"
        else:
            accepted.append(fact)
            continue
        reasons.append(f"{reason}: {fact.content[:100]}")
    if len(accepted) > limits.max_facts:
        reasons.append(
            f"{len(accepted) - limits.max_facts} of {len(accepted)} exceed the maximum of {limits.max_facts}"
        )
        best = sorted(range(len(accepted)), key=lambda at: -accepted[at].importance)[: limits.max_facts]
        accepted = [accepted[at] for at in sorted(best)]
    return accepted, reasons


MAX_TALK_CHARS = 2_000
MAX_TURNS = 10
MAX_SENTENCES = 6
MAX_SENTENCE_CHARS = 160
MAX_TOKENS = 400
CONFIDENCE = 0.6
IMPORTANCE = 0.3
# The minimum share of the words of a model's sentence in the statement that it selects.
MIN_SHARED = 0.5

SMALL_SCHEMA: Mapping[str, Any] = {
    "title": "memories",
    "type": "object",
    "properties": {
        "memories": {
            "type": "array",
            "maxItems": MAX_SENTENCES,
            "items": {"type": "string", "maxLength": MAX_SENTENCE_CHARS},
        }
    },
    "required": ["memories"],
    "additionalProperties": False,
}

_log = logging.getLogger("recollect")
_ROLE = lazy_pattern(r"^\[(system|user|assistant)\]\n", re.MULTILINE)
_COMMON = frozenset(terms_of("user name is has likes wants"))


async def extract_with_small_model(
    turns: Sequence[Turn], selected: Extraction, *, chat: Chat, mode: str, limits: ExtractionLimits
) -> Extraction:
    """Return the facts of the selector and those that the model adds; a model that fails adds none."""
    categories = get_extraction_mode(mode).categories
    user_turns = [turn for turn in turns if turn.role is Role.USER]
    if not user_turns or limits.min_confidence > CONFIDENCE or limits.min_importance > IMPORTANCE:
        return selected
    if categories and Category.FACT not in categories:
        return selected
    try:
        answer: LlmAnswer[tuple[Operation, ...]] = await ask_for_json(
            chat,
            _messages(user_turns),
            schema=SMALL_SCHEMA,
            check=OperationParser(0, 0).parse,
            max_tokens=min(MAX_TOKENS, limits.max_tokens),
            timeout_s=limits.timeout_s,
        )
    except ModelUnavailable as error:
        answer = LlmAnswer(None, LlmCost(), error)
    if isinstance(answer.error, ModelUnavailable):
        _log.warning("The small model failed; only the built-in selector was used: %s", answer.error)
        reasons = [f"the model failed: {answer.error}"]
        return replace(selected, rejected=(*selected.rejected, *reasons), cost=answer.cost)
    if answer.error is not None:
        raise answer.error
    pointed, unused = _match_statements(answer.value or (), user_turns, selected.facts)
    added = [replace(each, model=answer.cost.model) for each in pointed]
    # Without the sentences: what a small model invents about people must not be stored anywhere.
    reasons = [f"{unused} statements of the model are not in what the user said"] if unused else []
    return replace(
        selected,
        facts=(*selected.facts, *added),
        cost=answer.cost,
        prompt_digest=prompt("extract_small").digest,
        rejected=(*selected.rejected, *reasons),
    )


def _messages(user_turns: Sequence[Turn]) -> list[ChatMessage]:
    """Return the prompt as a conversation: small models imitate examples best if shown as their own answers."""
    user_turns = user_turns[-MAX_TURNS:]
    share = MAX_TALK_CHARS // len(user_turns)
    # Each turn is one line of JSON, so that its text cannot begin a new message.
    lines = "\n".join(f"user: {json.dumps(shorten(turn.content, share), ensure_ascii=False)}" for turn in user_turns)
    _, *parts = _ROLE.split(prompt("extract_small").fill(conversation=lines))
    return [{"role": role, "content": text.strip()} for role, text in zip(parts[::2], parts[1::2], strict=True)]


def _match_statements(
    operations: Sequence[Operation], user_turns: Sequence[Turn], selected: Sequence[ExtractedFact]
) -> tuple[list[ExtractedFact], int]:
    """Return the facts that the model's sentences add, and the number of sentences without a statement."""
    sources = [
        (turn, each, set(terms_of(each.text))) for turn in user_turns for each in score_statements(turn.content)
    ]
    selected_terms = [set(terms_of(fact.content)) for fact in selected]
    added: dict[str, ExtractedFact] = {}
    unused = 0
    for operation in operations[:MAX_SENTENCES]:
        terms = set(terms_of(operation.content)) - _COMMON
        best = max(sources, key=lambda source: len(terms & source[2]), default=None)
        if best is None or not terms or len(terms & best[2]) < max(1.0, MIN_SHARED * len(terms)):
            unused += 1
        elif not any(best[2] <= fact_terms for fact_terms in selected_terms) and not best[
            1
        ].sentence.rstrip().endswith("?"):
            added.setdefault(best[1].text, _build_pointed_fact(best[0], best[1]))
    return list(added.values()), unused


def _build_pointed_fact(turn: Turn, statement: SelectedStatement) -> ExtractedFact:
    fact = build_fact(statement, turn)
    return replace(fact, confidence=CONFIDENCE, importance=IMPORTANCE, category=Category.FACT, key=None, value=None)
