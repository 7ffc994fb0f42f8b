"""Extract with a small local model: a short prompt, a bounded answer, and the selector as the main source.

A small model finds statements that the selector misses, but also invents some. So its sentences only select the
statement of the user that shares most words with them, and that statement is stored as the user wrote it.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from recollect.errors import ModelUnavailable
from recollect.ledger.tokenizer import terms_of
from recollect.model.memory import Category
from recollect.model.turn import Role, Turn
from recollect.models.chat import Chat, ChatMessage
from recollect.prompts import prompt
from recollect.prompts.rendering import shorten
from recollect.write.ask_llm import LlmAnswer, LlmCost, ask_for_json
from recollect.write.extract import Extraction, ExtractionLimits, get_extraction_mode
from recollect.write.operations import ExtractedFact, Operation, OperationParser
from recollect.write.select import SelectedStatement, build_fact, score_statements

MAX_TALK_CHARS = 2_000
MAX_TURNS = 10
MAX_SENTENCES = 6
MAX_SENTENCE_CHARS = 160
MAX_TOKENS = 400
CONFIDENCE = 0.6
IMPORTANCE = 0.3
# The minimum share of the words of a model's sentence in the statement that it selects.
MIN_SHARED = 0.5

SCHEMA: Mapping[str, Any] = {
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
_ROLE = re.compile(r"^\[(system|user|assistant)\]\n", re.MULTILINE)
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
            schema=SCHEMA,
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
    added, unused = _match_statements(answer.value or (), user_turns, selected.facts)
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
