"""Whoever asks, as every door sees them: for whom they may speak, and whether they may read and write."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Literal, TypeAlias

from fastapi import Depends
from starlette.requests import HTTPConnection

from recollect.errors import Conflict, MissingUser, NotAllowed, NotFound, StoreUnavailable
from recollect.model.change import Actor, By, Outcome
from recollect.model.memory import MemoryRecord
from recollect.model.scope import Level, Scope

# Where in the state of a request the caller is, and whether a credential of the client's was ours, and taken out.
CALLER, WITHHELD = "caller", "withheld"


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who is asking. Without a user they may name any; `name` is what history calls them."""

    kind: Literal["local", "key", "gateway", "jwt"]
    name: str
    user: str | None = None
    project: str | None = None
    # The project that a header names to a caller who may name any.
    named_project: str | None = None
    admin: bool = False
    reads: bool = True
    writes: bool = True
    # Whether the ledger was asked in vain who this is: chats go on, and nothing is told.
    is_unknown: bool = False

    def scope(
        self, user_id: str | None = None, project_id: str | None = None, session_id: str | None = None
    ) -> Scope:
        """The scope that is asked for; NotAllowed for another user or project, MissingUser where none is named."""
        user = self.bound_user(user_id)
        if not user:
            raise MissingUser("name the user whose memory it is: whoever asks here may speak for any")
        return Scope(user, self.bound_project(project_id) or "", session_id or "")

    def bound_user(self, named: str | None) -> str | None:
        """The one user there is to this caller, or else the one that was named; NotAllowed if they differ."""
        if self.user is None:
            return named
        if named and named != self.user:
            raise NotAllowed("whoever asks here speaks for one user, and another one was named")
        return self.user

    def named_by(self, user: str | None) -> Caller:
        """The same caller, who has said for which user; whoever names another one later is refused."""
        return replace(self, user=self.bound_user(user) or None)

    def bound_project(self, named: str | None) -> str | None:
        """The same for projects."""
        if self.project is None:
            if named and self.named_project and named != self.named_project:
                raise NotAllowed("X-Memory-Project and the request name two projects; a request is about one")
            return named or self.named_project
        if named and named != self.project:
            raise NotAllowed("whoever asks here speaks for one project, and another one was named")
        return self.project

    def holds(self, scope: Scope) -> bool:
        """Whether what is kept there is this caller's: their user's, and their project's where they have one."""
        return self.user in (None, scope.user) and self.project in (None, scope.project)

    def owned(self, record: MemoryRecord) -> MemoryRecord:
        """The memory itself; one of another user or project is as unknown as one that does not exist."""
        # What is the user's own is recalled in every project.
        is_shared = record.level is Level.USER and not record.scope.project
        if not self.holds(replace(record.scope, project=self.project or "") if is_shared else record.scope):
            raise NotFound(f"no memory {record.id}")
        return record

    def to_change(self, record: MemoryRecord) -> MemoryRecord:
        """The memory itself, if they may change it: who speaks for one project changes nothing for the others."""
        if not self.holds(self.owned(record).scope):
            raise NotAllowed("this is the user's own in all projects, and whoever asks here speaks for one project")
        return record

    def check_level(self, level: Level | None) -> None:
        """Raise if a new memory of that level would be seen in projects that are not theirs."""
        if self.project is not None and level is Level.USER:
            raise NotAllowed("level 'user' is for all projects, and whoever asks here speaks for one project")

    def check_reads(self) -> None:
        """Raise if they may only write."""
        self._check_known()
        if not self.reads:
            raise NotAllowed("this key may write, not read")

    def check_told(self, outcome: Outcome) -> Outcome:
        """The outcome itself; a Conflict if it is what was there before, and they may only write."""
        if not self.reads and not outcome.changed:
            raise Conflict("that, or something surer in its place, is kept already, and this key may write, not read")
        return outcome

    def check_writes(self) -> None:
        """Raise if they may only read."""
        self._check_known()
        if not self.writes:
            raise NotAllowed("this key may read, not write")

    def check_admin(self) -> None:
        """Raise if this is not for them: it concerns everyone."""
        self._check_known()
        if not self.admin:
            raise NotAllowed("this is for admin keys: it concerns everyone")

    def _check_known(self) -> None:
        if self.is_unknown:
            raise StoreUnavailable("the ledger does not answer, so nobody can tell whether keys are asked for")

    def by(self, why: str = "", *, actor: Actor = Actor.AGENT) -> By:
        """How history tells of what they change."""
        return By(self.name, why, actor=actor)


LOCAL = Caller(kind="local", name="local", admin=True)


def caller_of(request: HTTPConnection) -> Caller:
    """Who asks, as the middleware found out."""
    caller: Caller = request.scope["state"][CALLER]
    return caller


async def _asking(request: HTTPConnection) -> Caller:
    # What is declared and not async is called in another thread, which takes longer than most answers.
    return caller_of(request)


# What a door declares to be handed its caller.
Asking: TypeAlias = Annotated[Caller, Depends(_asking)]
