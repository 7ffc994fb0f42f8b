"""Extract facts from turns with one LLM call, in a mode for chats, documents, tasks or profiles."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from hashlib import blake2b
from importlib.resources import files

from recollect.errors import InvalidInput, RecollectError
from recollect.model.memory import Category, MemoryRecord, Trust
from recollect.model.turn import Turn
from recollect.models.chat import Chat
from recollect.prompts import prompt
from recollect.prompts.rendering import json_line, max_chars_per_turn, new_delimiter
from recollect.write.ask_llm import NO_COST, LlmAnswer, LlmCost, ask_for_json
from recollect.write.batch import Batch
from recollect.write.check import check_operations
from recollect.write.operations import SCHEMA, ExtractedFact, Operation, OperationParser, memory_rows, turn_row


@dataclass(frozen=True, slots=True)
class ExtractionMode:
    """The mode's part of the prompt, and the categories it stores (empty: all)."""

    text: str
    categories: frozenset[Category]


@cache
def load_modes() -> dict[str, ExtractionMode]:
    """Return the interaction modes by name."""
    table = tomllib.loads((files(__package__) / "modes.toml").read_text(encoding="utf-8"))
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


@dataclass(frozen=True, slots=True, kw_only=True)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Extraction:
    """Extracted facts, the reasons why operations were not used, and the cost; `error` if no answer was usable."""

    facts: tuple[ExtractedFact, ...] = ()
    rejected: tuple[str, ...] = ()
    cost: LlmCost = NO_COST
    prompt_digest: str = ""
    error: RecollectError | None = None


@dataclass(frozen=True, slots=True)
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
    facts, below_limits = _filter_facts(facts, style, limits)
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
