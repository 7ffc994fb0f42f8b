"""The last recalls of this process, and the audit log of the page.

A recall is kept in memory: what was asked, and what went into the prompt and why. The audit log has every look of
somebody with a key for several users at one user's memories.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal

from recollect.ledger.ledger import Ledger
from recollect.ledger.types import AccessRow
from recollect.model.erasure import user_digest
from recollect.model.ids import new_id
from recollect.model.result import RecallOutcome, RecallResult, SearchResult
from recollect.model.scope import Scope
from recollect.model.times import from_micros, now, to_micros

__all__ = ["AccessRow", "AuditLog", "LoggedRecall", "MemoryAccess", "RecallLog"]
# A user with many chats does not displace those of the others.
MAX_PER_USER = 50
# A trace with all features of all candidates takes a hundred times the memory of a recall.
_MAX_CANDIDATES = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedRecall:
    """A recall, or a search with a trace; `result` has no messages and, if it is traced, the first candidates."""

    id: str
    scope: Scope
    at: datetime
    kind: Literal["recall", "search"]
    question: str
    result: RecallResult

    def summary(self) -> dict[str, Any]:
        """Return plain values for a list."""
        result = self.result
        return {
            "id": self.id,
            "at": self.at.isoformat(),
            "kind": self.kind,
            "project_id": self.scope.project or None,
            "session_id": self.scope.session or None,
            "question": self.question,
            "query": result.query,
            "outcome": str(result.outcome),
            "reason": result.reason,
            "hits": len(result.hits),
            "used": len(result.context.used),
            "tokens": result.context.tokens,
            "total_ms": round(sum(result.steps_us.values()) / 1000, 3),
            "traced": result.trace is not None,
        }

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        plain = self.result.to_dict()
        del plain["messages"]
        return {**plain, **self.summary()}


class RecallLog:
    """The last `size` recalls, of each user the last 50; a size of 0 turns it off."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._entries: OrderedDict[str, LoggedRecall] = OrderedDict()
        self._ids_of_user: dict[str, deque[str]] = {}

    def record_recall(self, scope: Scope, question: str, result: RecallResult, *, at: datetime) -> None:
        """Record a recall that began at the time `at`."""
        if self._size:
            self._add(scope, "recall", question, result, at)

    def record_search(self, scope: Scope, question: str, result: SearchResult, *, at: datetime) -> None:
        """Record a search that began at the time `at`, if it has a trace."""
        if not self._size or result.trace is None:
            return
        found = RecallOutcome.USED if result.hits else RecallOutcome.MISSING
        as_recall = RecallResult(
            outcome=found,
            reason=f"hits: {len(result.hits)}",
            query=question,
            hits=result.hits,
            steps_us=result.steps_us,
            notes=result.notes,
            candidates=result.candidates,
            trace=result.trace,
        )
        self._add(scope, "search", question, as_recall, at)

    def list(self, scope: Scope) -> list[LoggedRecall]:
        """Return the recalls of the user, project or session, newest first."""
        entries = [self._entries[id] for id in reversed(self._ids_of_user.get(scope.user, ()))]
        return [
            each
            for each in entries
            if scope.project in ("", each.scope.project) and scope.session in ("", each.scope.session)
        ]

    def forget(self, user: str, *, until: datetime | None = None) -> None:
        """Remove the recalls of a user, or only those until a moment."""
        for id in list(self._ids_of_user.get(user, ())):
            if until is None or self._entries[id].at <= until:
                self._remove(id)

    def _add(
        self, scope: Scope, kind: Literal["recall", "search"], question: str, result: RecallResult, at: datetime
    ) -> None:
        candidates = tuple(replace(each, features={}) for each in result.candidates[:_MAX_CANDIDATES])
        result = replace(result, candidates=candidates, messages=(), failure=None)
        entry = LoggedRecall(id=new_id(), scope=scope, at=at, kind=kind, question=question, result=result)
        self._entries[entry.id] = entry
        ids = self._ids_of_user.setdefault(scope.user, deque())
        ids.append(entry.id)
        if len(ids) > MAX_PER_USER:
            self._remove(ids[0])
        elif len(self._entries) > self._size:
            self._remove(next(iter(self._entries)))

    def _remove(self, id: str) -> None:
        user = self._entries.pop(id).scope.user
        self._ids_of_user[user].remove(id)
        if not self._ids_of_user[user]:
            del self._ids_of_user[user]


_MINUTE_MICROS = 60_000_000
_MAX_REMEMBERED = 10_000


@dataclass(frozen=True, slots=True)
class MemoryAccess:
    """An entry of the log; `user` is None for a user who no longer exists."""

    at: datetime
    who: str
    user: str | None
    route: str
    row: AccessRow

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        at, digest = self.at.isoformat(), self.row.user_digest
        return {"at": at, "who": self.who, "user_id": self.user, "user_digest": digest, "route": self.route}


class AuditLog:
    """Records accesses, at most once a minute for each user and route."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._minute = 0
        self._recorded: set[AccessRow] = set()

    async def record(self, who: str, user: str, route: str) -> None:
        """Record an access; it is on disk when this returns."""
        minute = to_micros(now()) // _MINUTE_MICROS
        if minute != self._minute or len(self._recorded) >= _MAX_REMEMBERED:
            self._minute, self._recorded = minute, set()
        access = AccessRow(minute, who, user_digest(user), route)
        if access not in self._recorded:
            await self._ledger.record_access(access)
            self._recorded.add(access)

    async def list(
        self, *, user: str | None = None, before: AccessRow | None = None, limit: int
    ) -> list[MemoryAccess]:
        """Return accesses to all users or to one, newest first."""
        digest = None if user is None else user_digest(user)
        rows = await self._ledger.accesses(user_digest=digest, before=before, limit=limit)
        names = {user_digest(name): name for name in ([user] if user is not None else await self._ledger.users())}
        return [
            MemoryAccess(
                from_micros(row.minute * _MINUTE_MICROS), row.who, names.get(row.user_digest), row.route, row
            )
            for row in rows
        ]
