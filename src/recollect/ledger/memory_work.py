"""What the ledger in memory keeps beside memories: jobs, conversations, usage, and effects on all of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Literal, assert_never

from recollect.errors import Conflict
from recollect.ledger.memory_jobs import MemoryJobs
from recollect.ledger.memory_rows import UserState, plain_copy
from recollect.model.effect import ConversationUpdate, Effect, EnqueueJob, FinishJob, ModelUsage
from recollect.model.query import validate_limit
from recollect.model.scope import Scope
from recollect.model.text import repair_text
from recollect.model.times import now
from recollect.model.turn import Conversation
from recollect.model.usage import Part, SpentToday, Usage, day_from_number, day_number, validate_parts

_EPOCH_START = datetime(1970, 1, 1, tzinfo=UTC)


class MemoryEffects(MemoryJobs):
    """The plainest reading of `Jobs`."""

    _users: dict[str, UserState]

    def __init__(self) -> None:
        super().__init__()
        # Calls, tokens in, tokens out by user, day, model and step.
        self._spent: defaultdict[tuple[str, int, str, str], tuple[int, int, int]] = defaultdict(lambda: (0, 0, 0))
        # What all users spent together, by day: it stays when one of them goes.
        self._spent_by_all: defaultdict[int, SpentToday] = defaultdict(SpentToday)

    async def conversations(
        self,
        user: str | None = None,
        *,
        open: bool | None = None,
        idle_before: datetime | None = None,
        order: Literal["oldest", "newest"] = "oldest",
        limit: int = 100,
        after: Conversation | None = None,
    ) -> list[Conversation]:
        self._check_open()
        newest = order == "newest"
        stored = [
            each
            for name, stored in self._users.items()
            if user in (None, name)
            for each in stored.conversations.values()
        ]
        selected = [
            each
            for each in sorted(stored, key=_sort_key, reverse=newest)
            if (open is None or open is (each.closed_at is None))
            and (idle_before is None or (each.last_turn_at is not None and each.last_turn_at < idle_before))
            and (
                after is None
                or (_sort_key(each) < _sort_key(after) if newest else _sort_key(each) > _sort_key(after))
            )
        ]
        return selected[: validate_limit(limit)]

    async def usage(
        self,
        user: str | None = None,
        *,
        since: datetime | None = None,
        by: Sequence[Part] = ("day", "model", "step"),
    ) -> list[Usage]:
        self._check_open()
        parts = validate_parts(by)
        sums: dict[tuple[Any, ...], tuple[int, int, int]] = {}
        for (who, day, model, step), (calls, tokens_in, tokens_out) in self._spent.items():
            if user in (None, who) and (since is None or day >= day_number(since)):
                fields = {"user": who, "day": day, "model": model, "step": step}
                key = tuple(fields[part] for part in parts)
                before = sums.get(key, (0, 0, 0))
                sums[key] = (before[0] + calls, before[1] + tokens_in, before[2] + tokens_out)
        return [_sum(parts, key, sums[key]) for key in sorted(sums)]

    async def spent_today(self, user: str | None) -> SpentToday:
        self._check_open()
        today = day_number(now())
        if user is None:
            return self._spent_by_all.get(today, SpentToday())
        mine = [spent for (who, day, _, _), spent in self._spent.items() if (who, day) == (user, today)]
        return SpentToday(sum(each[1] + each[2] for each in mine), sum(each[0] for each in mine))

    @contextmanager
    def _all_or_none(self, user: UserState) -> Iterator[None]:
        """Take back what was done to jobs, conversations and usage if something goes wrong inside."""
        before = (
            dict(self._jobs),
            self._failures.copy(),
            self._spent.copy(),
            self._spent_by_all.copy(),
            dict(user.conversations),
            dict(self._task_runs),
        )
        try:
            yield
        except BaseException:
            self._jobs, self._failures, self._spent, self._spent_by_all, user.conversations, self._task_runs = before
            raise

    def _apply_effects(self, scope: Scope, user: UserState, effects: Sequence[Effect]) -> None:
        # A job can outlive the session it was made for, which must not come back by it.
        from_job = any(isinstance(effect, FinishJob) for effect in effects)
        for effect in effects:
            match effect:
                case FinishJob():
                    self._finish(scope.user, effect.job_id, effect.lease, effect.result)
                case ConversationUpdate():
                    if not from_job or (effect.scope.project, effect.scope.session) in user.conversations:
                        _apply_note(user, effect)
                case EnqueueJob():
                    self._put_job(effect.scope, effect.job)
                case ModelUsage():
                    key = (effect.user, day_number(effect.at), repair_text(effect.model), repair_text(effect.step))
                    calls, tokens_in, tokens_out = self._spent[key]
                    self._spent[key] = (
                        calls + effect.calls,
                        tokens_in + effect.tokens_in,
                        tokens_out + effect.tokens_out,
                    )
                    self._add_to_daily_total([effect])
                case _:
                    assert_never(effect)

    def _add_to_daily_total(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, ModelUsage):
                day = day_number(effect.at)
                before, tokens = self._spent_by_all[day], effect.tokens_in + effect.tokens_out
                self._spent_by_all[day] = SpentToday(before.tokens + tokens, before.calls + effect.calls)


def _apply_note(user: UserState, note: ConversationUpdate) -> None:
    session = (note.scope.project, note.scope.session)
    conversation = user.conversations.get(session, Conversation(scope=note.scope))
    if note.expected_version is not None and conversation.version != note.expected_version:
        raise Conflict(
            f"the conversation is at version {conversation.version}, not {note.expected_version}: read it again and retry"
        )
    fields = dict(note.fields)
    if "invocations" in fields:
        fields["invocations"] = tuple(plain_copy(each) for each in fields["invocations"])
    if "metadata" in fields:
        fields["metadata"] = plain_copy(fields["metadata"])
    user.conversations[session] = replace(conversation, **fields, version=conversation.version + 1)


def _sort_key(conversation: Conversation) -> tuple[datetime, str, str, str]:
    scope = conversation.scope
    return conversation.last_turn_at or _EPOCH_START, scope.user, scope.project, scope.session


def _sum(parts: tuple[str, ...], key: tuple[Any, ...], sums: tuple[int, int, int]) -> Usage:
    fields = dict(zip(parts, key, strict=True))
    if "day" in fields:
        fields["day"] = day_from_number(fields["day"])
    return Usage(**fields, calls=sums[0], tokens_in=sums[1], tokens_out=sums[2])
