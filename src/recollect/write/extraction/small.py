"""Extract with a small model: a short question, an answer that cannot ramble, and rules beside it.

A small model finds statements that no rule has a pattern for, and makes up and mixes up others as readily. So it only
points: what it writes leads to the user's statement that it comes from, and that is kept, in the words it was said
in. What rules find stands beside it, with keys and corrections; if the model fails, that is enough.
"""

from __future__ import annotations

import json
import logging
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from recollect.errors import BrokenAnswer, ModelUnavailable
from recollect.ledger.terms import terms_of
from recollect.model.learned import Learned
from recollect.model.memory import Category
from recollect.model.turn import Role, Turn
from recollect.models.chat import Chat, ChatMessage
from recollect.models.structured import Structured, ask_json
from recollect.prompts import prompt
from recollect.prompts.data import shortened
from recollect.write.extraction.answer import Claim, claims_of
from recollect.write.extraction.extract import SOURCE, Extracted, Limits
from recollect.write.extraction.ground import Said
from recollect.write.extraction.prompt import style_of
from recollect.write.extraction.words import words
from recollect.write.rules.statements import Statement, statements

# What a small model reads without losing its way, and what it may write: a few sentences, whatever it would like to.
MAX_TALK_CHARS = 2_000
MAX_TURNS = 10
MAX_SENTENCES = 6
MAX_SENTENCE_CHARS = 160
MAX_TOKENS = 400
# It does not know how sure it is, and hardly what matters: where there is too much, this goes first.
CONFIDENCE = 0.6
IMPORTANCE = 0.3
# So much of what it writes must stand in a statement, for that to be what it means.
LEAST_SAID = 0.5
LEAST_MORE = 2

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


async def extract_small(
    turns: Sequence[Turn], stated: Extracted, *, chat: Chat, mode: str, limits: Limits
) -> Extracted:
    """What rules `stated` of the turns, and what a small model finds beside it; a model that fails adds nothing."""
    kept = style_of(mode).categories
    said = [turn for turn in turns if turn.role is Role.USER]
    if not said or limits.min_confidence > CONFIDENCE or limits.min_importance > IMPORTANCE:
        return stated
    if kept and Category.FACT not in kept:
        return stated
    try:
        answer: Structured[tuple[Claim, ...]] = await ask_json(
            chat,
            _messages(said),
            schema=SCHEMA,
            max_tokens=min(MAX_TOKENS, limits.max_tokens),
            timeout_s=limits.timeout_s,
            check=claims_of,
        )
    except ModelUnavailable as error:
        _log.warning("rules alone learned from what was said: %s", error)
        reason = f"the model was of no help: {error}"
        stated = replace(stated, dropped=(*stated.dropped, reason))
        if not isinstance(error, BrokenAnswer):
            return stated
        return replace(
            stated, calls=error.calls, tokens_in=error.tokens_in, tokens_out=error.tokens_out, model=chat.model
        )
    added, dropped = _pointed_at(answer.value, said, stated.learned)
    return replace(
        stated,
        learned=(*stated.learned, *added),
        calls=answer.calls,
        tokens_in=answer.tokens_in,
        tokens_out=answer.tokens_out,
        model=answer.model,
        prompt_digest=prompt("extract_small").digest,
        dropped=(*stated.dropped, *dropped),
    )


def _messages(said: Sequence[Turn]) -> list[ChatMessage]:
    """The prompt as a conversation: what a small model is shown as its own answers it imitates best."""
    said = said[-MAX_TURNS:]
    share = MAX_TALK_CHARS // len(said)
    # Each turn is one line of JSON: nothing that was said can begin a message of its own.
    lines = "\n".join(f"user: {json.dumps(shortened(turn.content, share), ensure_ascii=False)}" for turn in said)
    _, *parts = _ROLE.split(prompt("extract_small").fill(conversation=lines))
    return [{"role": role, "content": text.strip()} for role, text in zip(parts[::2], parts[1::2], strict=True)]


def _pointed_at(
    claims: Sequence[Claim], said: Sequence[Turn], stated: Sequence[Learned]
) -> tuple[list[Learned], list[str]]:
    """The statements that the claims are made of, where they tell more than is stated, and why the others are not."""
    sources = [(each, Said([each.said])) for turn in said for each in statements(turn)]
    added: dict[str, Learned] = {}
    reasons: Counter[str] = Counter()
    for claim in claims[:MAX_SENTENCES]:
        found = _sources(claim.content, sources)
        news = [each for each in found if not _is_stated(each, stated)]
        if not news:
            reasons["rules found it" if found else "the user states nothing like it"] += 1
        for each in news:
            added.setdefault(each.content, _learned(each))
    # Without its words: what a small model makes up of people is not to be kept anywhere.
    return list(added.values()), [f"{count} of the model's: {reason}" for reason, count in reasons.items()]


def _sources(content: str, sources: Sequence[tuple[Statement, Said]]) -> list[Statement]:
    """The statements that a sentence is made of: one that holds half of its words, then any with more of the rest."""
    left = _telling(content)
    least = max(1.0, LEAST_SAID * len(left))
    found: list[Statement] = []
    while left:
        held = [{term for term in left if said.has_term(term)} for _, said in sources]
        best = max(range(len(held)), key=lambda at: len(held[at]), default=None)
        if best is None or len(held[best]) < least:
            break
        found.append(sources[best][0])
        left -= held[best]
        least = LEAST_MORE
    return found


def _is_stated(source: Statement, stated: Sequence[Learned]) -> bool:
    """Whether rules found what a statement says, or took it for a correction, which also says what is wrong."""
    telling = _telling(source.content)
    if telling <= {term for each in stated for term in terms_of(each.content)}:
        return True
    return any(
        (each.correction or each.retraction)
        and source.turn.id in each.evidence
        and len(telling & set(terms_of(each.content))) * 2 >= len(telling)
        for each in stated
    )


def _telling(text: str) -> set[str]:
    return set(terms_of(text)) - words().generic


def _learned(source: Statement) -> Learned:
    return Learned(
        content=source.content,
        importance=IMPORTANCE,
        confidence=CONFIDENCE,
        occurred_at=source.occurred_at,
        evidence=(source.turn.id,),
        source=SOURCE,
    )
