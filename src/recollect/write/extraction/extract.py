"""Extract: what a conversation says that is worth remembering, by one structured question to an LLM.

What the model answers is a claim, not knowledge: each must rest on turns it was shown, say nothing that was not said
there, and weigh enough. What is left out is told with its reason.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime

from recollect.ledger.terms import terms_of
from recollect.model.learned import Learned
from recollect.model.memory import Category, MemoryType, Trust, text_hash
from recollect.model.turn import Role, Turn
from recollect.models.chat import Chat
from recollect.models.structured import Structured, ask_json
from recollect.write.extraction.answer import SCHEMA, Claim, claims_of
from recollect.write.extraction.ended import told_as_over
from recollect.write.extraction.ground import (
    Said,
    denies_what_was_said,
    is_near,
    is_supported,
    made_up,
    rests_on,
    scripts_of,
    unsaid,
)
from recollect.write.extraction.prompt import Question, Style, question, style_of
from recollect.write.screening.redact import redact
from recollect.write.screening.trust import words_of_user

# What an assistant says of a user, and what was translated out of their script, is never sure.
MAX_DOUBTFUL_CONFIDENCE = 0.6
MAX_REASONS = 50
SOURCE = "conversation"
UNSURE_INSTRUCTION = "an instruction that is not in the user's own words"

_KEYED = (Category.IDENTITY, Category.PREFERENCE, Category.CONSTRAINT, Category.INSTRUCTION)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What is worth keeping, and what a question may cost."""

    min_importance: float = 0.2
    min_confidence: float = 0.4
    most: int = 50
    max_tokens: int = 2048
    timeout_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Extracted:
    """What was learned, what that cost, why some claims were left out, and of how many nobody said what they say."""

    learned: tuple[Learned, ...] = ()
    calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    model: str = ""
    prompt_digest: str = ""
    dropped: tuple[str, ...] = ()
    ungrounded: int = 0


async def extract(
    turns: Sequence[Turn],
    *,
    chat: Chat,
    context: Sequence[Turn] = (),
    mode: str = "chat",
    now: datetime,
    limits: Limits,
) -> Extracted:
    """What `turns` say that is worth remembering; a BrokenAnswer if the model gives nothing that can be used.

    `context` are turns that were learned from before and only help to understand. Dates are worked out from the days
    of the turns; `now` bounds how far ahead one is believed.
    """
    style = style_of(mode)
    if not turns:
        return Extracted(model=chat.model)
    asked = question(turns, context=context, mode=mode)
    answer: Structured[tuple[Claim, ...]] = await ask_json(
        chat,
        [{"role": "user", "content": asked.text}],
        schema=SCHEMA,
        max_tokens=limits.max_tokens,
        timeout_s=limits.timeout_s,
        check=claims_of,
    )
    judge = _Judge(asked, turns, style, limits, now)
    # Hundreds of claims take a while: others need not wait for it.
    learned = await asyncio.to_thread(judge.weigh_all, answer.value)
    reasons = [f"of the turn {id} only the beginning and the end were read" for id in asked.shortened]
    reasons += [*(f"salvaged: {each}" for each in answer.complaints), *judge.dropped]
    if len(reasons) > MAX_REASONS:
        reasons = [*reasons[:MAX_REASONS], f"and {len(reasons) - MAX_REASONS} more"]
    return Extracted(
        learned=tuple(learned),
        calls=answer.calls,
        tokens_in=answer.tokens_in,
        tokens_out=answer.tokens_out,
        model=answer.model,
        prompt_digest=asked.digest,
        dropped=tuple(reasons),
        ungrounded=judge.ungrounded,
    )


class _Judge:
    """Holds claims against what was said; `whole` are the turns that the model was shown, before they were cut."""

    def __init__(self, asked: Question, whole: Sequence[Turn], style: Style, limits: Limits, now: datetime) -> None:
        self.dropped: list[str] = []
        self.ungrounded = 0
        self._turns = asked.turns
        self._whole = whole
        self._shown = Said.of([*asked.context, *asked.turns])
        self._style = style
        self._limits = limits
        self._now = now
        self._said: dict[tuple[int, ...], Said] = {}
        self._own: dict[tuple[int, ...], Said] = {}
        self._seen: set[str] = set()

    def weigh_all(self, claims: Sequence[Claim]) -> list[Learned]:
        """What can be kept of all claims."""
        learned = [each for claim in claims if (each := self.weigh(claim)) is not None]
        return self.settle_keys(self.fit(learned))

    def weigh(self, claim: Claim) -> Learned | None:
        """What can be kept of a claim; None, and a reason among those dropped, if nothing can."""
        at = self._evidence(claim)
        wrong = self._wrong_with(claim, at)
        if wrong:
            said = redact(claim.content)
            # What is wrong with it may name the secret, or a part of it.
            wrong = "not to be kept, and with a secret in it" if said.found else wrong
            self.dropped.append(f"{wrong}: {said.text[:100]}")
            return None
        self._seen.add(text_hash(claim.content))
        cited = [self._turns[each] for each in at]
        own, quoted = self._users_words(at)
        # Whoever only says yes has not said it themselves, nor has who only quotes it.
        users = (
            not claim.by_assistant
            and is_supported(claim.content, cited=own, shown=self._shown)
            and not rests_on(claim.content, quoted, rather_than=own)
        )
        changes = users and not rests_on(claim.content, quoted, rather_than=own, every_word=True)
        sure = users and bool(scripts_of(claim.content) & self._shown.scripts)
        instructs = claim.category is Category.INSTRUCTION or claim.type is MemoryType.PROCEDURAL
        ends = claim.change == "ended"
        opposite = ends and denies_what_was_said(claim.content, own)
        over = told_as_over(claim.content, own.text, opposite=opposite) if ends else ""
        if over and not changes:
            # Kept, it would say what someone just said is over.
            self.dropped.append(f"not the user says that it is over: {claim.content[:100]}")
            return None
        key, value = self._keyed(claim)
        return Learned(
            content=claim.content,
            category=claim.category,
            type=claim.type,
            key=key,
            value=value,
            importance=claim.importance,
            confidence=claim.confidence if sure else min(claim.confidence, MAX_DOUBTFUL_CONFIDENCE),
            occurred_at=self._occurred_at(claim),
            trust=Trust.HIGH if users else Trust.LOW,
            evidence=tuple(turn.id for turn in cited),
            # Only the user can take back what the user said.
            correction=changes and claim.change == "correction",
            retraction=changes and ends,
            over=over,
            review=UNSURE_INSTRUCTION if instructs and not users else "",
            source=SOURCE,
        )

    def fit(self, learned: list[Learned]) -> list[Learned]:
        """The most important ones, as many as may be kept, in the order in which they were told."""
        most = self._limits.most
        if len(learned) <= most:
            return learned
        self.dropped.append(f"{len(learned) - most} of {len(learned)} were more than the {most} that may be kept")
        best = sorted(range(len(learned)), key=lambda at: -learned[at].importance)[:most]
        return [learned[at] for at in sorted(best)]

    def settle_keys(self, learned: list[Learned]) -> list[Learned]:
        """One value a key: what was said last. A key with several values said at once is none of a profile."""
        order = {turn.id: at for at, turn in enumerate(self._turns)}
        holders: Mapping[tuple[str, str], list[int]] = defaultdict(list)
        for at, each in enumerate(learned):
            if each.key and not each.retraction:
                holders[each.category, each.key].append(at)
        for held in holders.values():
            said_at = {at: max((order[id] for id in learned[at].evidence), default=-1) for at in held}
            latest = [at for at in held if said_at[at] == max(said_at.values())]
            for at in held:
                if len(held) > 1 and latest != [at]:
                    learned[at] = replace(learned[at], key=None, value=None)
        return learned

    def _evidence(self, claim: Claim) -> list[int]:
        """The turns it cites that exist; where it cites none of them, the turn that says most of it."""
        cited = [number - 1 for number in claim.turns if 1 <= number <= len(self._turns)]
        if cited:
            return cited
        terms = set(terms_of(claim.content))
        said = [self._what_is_said_in([at]) for at in range(len(self._turns))]
        counts = [sum(each.has_term(term) for term in terms) for each in said]
        best = max(range(len(counts)), key=lambda at: (counts[at], self._turns[at].role is Role.USER))
        return [best] if counts[best] else []

    def _wrong_with(self, claim: Claim, at: Sequence[int]) -> str:
        if claim.importance < self._limits.min_importance:
            return f"importance {claim.importance:g} is below {self._limits.min_importance:g}"
        if claim.confidence < self._limits.min_confidence:
            return f"confidence {claim.confidence:g} is below {self._limits.min_confidence:g}"
        if self._style.categories and claim.category not in self._style.categories:
            return f"{claim.category} is not kept in this mode"
        if text_hash(claim.content) in self._seen:
            return "told twice"
        if not at:
            self.ungrounded += 1
            return "no turn says it"
        cited, (_, users) = self._what_is_said_in(at), self._users_words(at)
        day = _day(claim.when)
        if claim.change == "ended":
            # What is over may be told as it was, the opposite of what is said now.
            wrong = unsaid(claim.content, when=day, cited=cited, shown=self._shown)
        else:
            wrong = made_up(claim.content, when=day, cited=cited, shown=self._shown, users=users)
        self.ungrounded += bool(wrong)
        return wrong

    def _what_is_said_in(self, at: Sequence[int]) -> Said:
        """What turns say together; claims tend to cite the same ones."""
        if tuple(at) not in self._said:
            self._said[tuple(at)] = Said.of([self._turns[each] for each in at])
        return self._said[tuple(at)]

    def _users_words(self, at: Sequence[int]) -> tuple[Said, Said]:
        """What the user says in these turns in words of their own, and what they say in all, quotations included."""
        users = tuple(each for each in at if self._turns[each].role is Role.USER)
        if users not in self._own:
            # A turn that was cut may lack the line that begins what is quoted.
            turns = [self._whole[each] for each in users]
            texts = [words_of_user(turns), *(turn.name or "" for turn in turns)]
            self._own[users] = Said(texts, [turn.said_at.date() for turn in turns])
        return self._own[users], self._what_is_said_in(users)

    def _keyed(self, claim: Claim) -> tuple[str | None, str | None]:
        """Key and value of a profile fact whose value was said."""
        if claim.category not in _KEYED or not claim.key:
            return None, None
        terms = terms_of(claim.value)
        said = any(self._shown.has_term(term) for term in terms) or not scripts_of(claim.value) & self._shown.scripts
        numbers = unsaid(claim.value, when=_day(claim.when), cited=self._shown, shown=self._shown)
        if (terms and said and not numbers) or (not terms and self._shown.has_literally(claim.value)):
            return claim.key, claim.value
        self.dropped.append(f"nobody said the value of {claim.key}: {claim.value[:100]}")
        return None, None

    def _occurred_at(self, claim: Claim) -> datetime | None:
        """The day of the event, if it can be told from the talk and is no slip of some centuries."""
        day = _day(claim.when)
        if day is None or not is_near(day, self._shown) or not 1800 <= day.year <= self._now.year + 200:
            return None
        return datetime(day.year, day.month, day.day, tzinfo=UTC)


def _day(text: str) -> date | None:
    """The day a model names, or the first of the month it names; None if it names none."""
    try:
        return date.fromisoformat(text[:10] if len(text) != 7 else f"{text}-01")
    except ValueError:
        return None
