"""Interaction modes: what extraction looks for in a chat, a document, a task or a profile."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from hashlib import blake2b
from importlib.resources import files

from recollect.errors import InvalidInput
from recollect.model.extracted_fact import ExtractedFact
from recollect.model.memory import Category, MemoryRecord
from recollect.model.turn import Turn
from recollect.models.chat import Chat
from recollect.models.structured import Structured, ask_json
from recollect.prompts import prompt
from recollect.prompts.rendering import json_line, max_chars_per_turn, new_delimiter, shorten
from recollect.write.batch import Batch
from recollect.write.check import check_operations
from recollect.write.operations import SCHEMA, Operation, OperationParser


@dataclass(frozen=True, slots=True)
class ExtractionMode:
    """The part of the prompt that a mode brings, and the categories it keeps (empty: all)."""

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
    """Return a mode, or raise an InvalidInput that lists the modes."""
    if name not in load_modes():
        raise InvalidInput(f"there is no interaction mode {name!r}; the modes are {', '.join(load_modes())}")
    return load_modes()[name]


MAX_CONTEXT_CHARS = 400
MAX_MEMORY_CHARS = 300
MAX_REASONS = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractionLimits:
    """What is worth keeping, and what one call may cost."""

    min_importance: float = 0.2
    min_confidence: float = 0.4
    max_facts: int = 50
    max_tokens: int = 2048
    timeout_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Extraction:
    """Extracted facts, the reasons why operations were not used, and what the call cost."""

    facts: tuple[ExtractedFact, ...] = ()
    rejected: tuple[str, ...] = ()
    calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    model: str = ""
    prompt_digest: str = ""


@dataclass(frozen=True, slots=True)
class ExtractionPrompt:
    """The text for the model, its digest, and the ids of the turns that were shortened."""

    text: str
    digest: str
    shortened: tuple[str, ...]


async def extract(batch: Batch, *, chat: Chat, mode: str, now: datetime, limits: ExtractionLimits) -> Extraction:
    """Ask the model once for the operations that the batch calls for; BrokenAnswer if it gives nothing usable."""
    style = get_extraction_mode(mode)
    if not batch.turns:
        return Extraction(model=chat.model)
    question = build_prompt(batch.turns, context=batch.context, memories=batch.memories, mode=style)
    answer: Structured[tuple[Operation, ...]] = await ask_json(
        chat,
        [{"role": "user", "content": question.text}],
        schema=SCHEMA,
        max_tokens=limits.max_tokens,
        timeout_s=limits.timeout_s,
        check=OperationParser(len(batch.turns), len(batch.memories)).parse,
    )
    facts, rejected = check_operations(answer.value, batch, now=now)
    facts, below_limits = _filter_facts(facts, style, limits)
    reasons = [f"only the beginning and the end of turn {id} were read" for id in question.shortened]
    reasons += [*(f"salvaged: {each}" for each in answer.complaints), *rejected, *below_limits]
    if len(reasons) > MAX_REASONS:
        reasons = [*reasons[:MAX_REASONS], f"and {len(reasons) - MAX_REASONS} more"]
    return Extraction(
        facts=tuple(facts),
        rejected=tuple(reasons),
        calls=answer.calls,
        tokens_in=answer.tokens_in,
        tokens_out=answer.tokens_out,
        model=answer.model,
        prompt_digest=question.digest,
    )


def build_prompt(
    turns: Sequence[Turn], *, context: Sequence[Turn], memories: Sequence[MemoryRecord], mode: ExtractionMode
) -> ExtractionPrompt:
    """Fill the prompt; everything before the data is the same for every call, so that providers can cache it."""
    share = max_chars_per_turn(len(turns))
    lines = [_turn_line({"before": True}, turn, MAX_CONTEXT_CHARS) for turn in context]
    lines += [_turn_line({"line": number}, turn, share) for number, turn in enumerate(turns, 1)]
    # One line of JSON each: nothing in the data can end the fence.
    rows = [_memory_line(number, record) for number, record in enumerate(memories, 1)]
    template = prompt("extract")
    text = template.fill(style=mode.text, fence=new_delimiter(), memories="\n".join(rows), lines="\n".join(lines))
    digest = blake2b(f"{template.digest} {mode.text}".encode(), digest_size=8).hexdigest()
    return ExtractionPrompt(text, digest, tuple(turn.id for turn in turns if len(turn.content) > share))


def _turn_line(lead: Mapping[str, object], turn: Turn, chars: int) -> str:
    row: dict[str, object] = {**lead, "day": f"{turn.said_at:%Y-%m-%d %A}", "who": str(turn.role)}
    if turn.name:
        row["name"] = turn.name
    return json_line({**row, "said": shorten(turn.content, chars)})


def _memory_line(number: int, record: MemoryRecord) -> str:
    row: dict[str, object] = {"memory": number, "says": shorten(record.content, MAX_MEMORY_CHARS)}
    row["date"] = f"{record.occurred_at or record.created_at:%Y-%m-%d}"
    if record.key:
        row["key"] = record.key
    return json_line(row)


def _filter_facts(
    facts: Sequence[ExtractedFact], mode: ExtractionMode, limits: ExtractionLimits
) -> tuple[list[ExtractedFact], list[str]]:
    """Return the facts that pass the mode and the limits, and why the others do not."""
    accepted: list[ExtractedFact] = []
    reasons: list[str] = []
    for fact in facts:
        if fact.target is None and fact.importance < limits.min_importance:
            reason = f"importance {fact.importance:g} is below {limits.min_importance:g}"
        elif fact.target is None and fact.confidence < limits.min_confidence and not fact.doubts:
            reason = f"confidence {fact.confidence:g} is below {limits.min_confidence:g}"
        elif mode.categories and fact.category not in mode.categories:
            reason = f"category {fact.category} is not kept in this mode"
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
