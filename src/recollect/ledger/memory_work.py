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
from recollect.ledger.memory_rows import User, plain_copy
from recollect.model.effect import Effect, Finish, Note, Queue, Spent
from recollect.model.query import checked_limit
from recollect.model.scope import Scope
from recollect.model.text import mended_text
from recollect.model.times import now
from recollect.model.turn import Conversation
from recollect.model.usage import Part, SpentToday, Usage, checked_parts, day_number, day_of

_NEVER = datetime(1970, 1, 1, tzinfo=UTC)


class MemoryWork(MemoryJobs):
    """The plainest reading of `Jobs`."""

    _users: dict[str, User]

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
        held = [
            each for name, held in self._users.items() if user in (None, name) for each in held.conversations.values()
        ]
        found = [
            each
            for each in sorted(held, key=_place, reverse=newest)
            if (open is None or open is (each.closed_at is None))
            and (idle_before is None or (each.last_turn_at is not None and each.last_turn_at < idle_before))
            and (after is None or (_place(each) < _place(after) if newest else _place(each) > _place(after)))
        ]
        return found[: checked_limit(limit)]

    async def usage(
        self,
        user: str | None = None,
        *,
        since: datetime | None = None,
        by: Sequence[Part] = ("day", "model", "step"),
    ) -> list[Usage]:
        self._check_open()
        parts = checked_parts(by)
        sums: dict[tuple[Any, ...], tuple[int, int, int]] = {}
        for (who, day, model, step), (calls, tokens_in, tokens_out) in self._spent.items():
            if user in (None, who) and (since is None or day >= day_number(since)):
                known = {"user": who, "day": day, "model": model, "step": step}
                key = tuple(known[part] for part in parts)
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
    def _all_or_none(self, user: User) -> Iterator[None]:
        """Take back what was done to jobs, conversations and usage if something goes wrong inside."""
        before = (
            dict(self._jobs),
            self._failures.copy(),
            self._spent.copy(),
            self._spent_by_all.copy(),
            dict(user.conversations),
            dict(self._chores),
        )
        try:
            yield
        except BaseException:
            self._jobs, self._failures, self._spent, self._spent_by_all, user.conversations, self._chores = before
            raise

    def _take_effect(self, scope: Scope, user: User, effects: Sequence[Effect]) -> None:
        # A job can outlive the session it was made for, which must not come back by it.
        from_job = any(isinstance(effect, Finish) for effect in effects)
        for effect in effects:
            match effect:
                case Finish():
                    self._finish(scope.user, effect.job_id, effect.lease, effect.result)
                case Note():
                    if not from_job or (effect.scope.project, effect.scope.session) in user.conversations:
                        _note(user, effect)
                case Queue():
                    self._put(effect.scope, effect.job)
                case Spent():
                    place = (effect.user, day_number(effect.at), mended_text(effect.model), mended_text(effect.step))
                    calls, tokens_in, tokens_out = self._spent[place]
                    self._spent[place] = (
                        calls + effect.calls,
                        tokens_in + effect.tokens_in,
                        tokens_out + effect.tokens_out,
                    )
                    self._spend_for_all([effect])
                case _:
                    assert_never(effect)

    def _spend_for_all(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Spent):
                day = day_number(effect.at)
                before, tokens = self._spent_by_all[day], effect.tokens_in + effect.tokens_out
                self._spent_by_all[day] = SpentToday(before.tokens + tokens, before.calls + effect.calls)


def _note(user: User, note: Note) -> None:
    session = (note.scope.project, note.scope.session)
    found = user.conversations.get(session, Conversation(scope=note.scope))
    if note.expected_version is not None and found.version != note.expected_version:
        raise Conflict(
            f"the conversation is at version {found.version}, not {note.expected_version}: read it again and retry"
        )
    fields = dict(note.fields)
    if "invocations" in fields:
        fields["invocations"] = tuple(plain_copy(each) for each in fields["invocations"])
    if "metadata" in fields:
        fields["metadata"] = plain_copy(fields["metadata"])
    user.conversations[session] = replace(found, **fields, version=found.version + 1)


def _place(conversation: Conversation) -> tuple[datetime, str, str, str]:
    scope = conversation.scope
    return conversation.last_turn_at or _NEVER, scope.user, scope.project, scope.session


def _sum(parts: tuple[str, ...], key: tuple[Any, ...], sums: tuple[int, int, int]) -> Usage:
    known = dict(zip(parts, key, strict=True))
    if "day" in known:
        known["day"] = day_of(known["day"])
    return Usage(**known, calls=sums[0], tokens_in=sums[1], tokens_out=sums[2])
