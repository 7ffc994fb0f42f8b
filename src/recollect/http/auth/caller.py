"""Whoever asks, as every door sees them: for whom they may speak, and whether they may read and write."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, TypeAlias

from fastapi import Depends, Request
from starlette.requests import HTTPConnection

from recollect.errors import Conflict, MissingUser, NotAllowed, NotFound, StoreUnavailable
from recollect.model.change import Actor, Author, Outcome
from recollect.model.memory import MemoryRecord
from recollect.model.scope import Level, Scope

# Where in the state of a request the caller is, and whether a credential of the client's was ours, and taken out.
STATE_CALLER, STATE_KEY_REMOVED = "caller", "withheld"


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
        user = self.resolve_user(user_id)
        if not user:
            raise MissingUser("name the user whose memory it is: whoever asks here may speak for any")
        return Scope(user, self.resolve_project(project_id) or "", session_id or "")

    def resolve_user(self, requested: str | None) -> str | None:
        """The one user there is to this caller, or else the one that was named; NotAllowed if they differ."""
        if self.user is None:
            return requested
        if requested and requested != self.user:
            raise NotAllowed("whoever asks here speaks for one user, and another one was named")
        return self.user

    def with_user(self, user: str | None) -> Caller:
        """The same caller, who has said for which user; whoever names another one later is refused."""
        return replace(self, user=self.resolve_user(user) or None)

    def resolve_project(self, requested: str | None) -> str | None:
        """The same for projects."""
        if self.project is None:
            if requested and self.named_project and requested != self.named_project:
                raise NotAllowed("X-Memory-Project and the request name two projects; a request is about one")
            return requested or self.named_project
        if requested and requested != self.project:
            raise NotAllowed("whoever asks here speaks for one project, and another one was named")
        return self.project

    def owns(self, scope: Scope) -> bool:
        """Whether what is kept there is this caller's: their user's, and their project's where they have one."""
        return self.user in (None, scope.user) and self.project in (None, scope.project)

    def ensure_visible(self, record: MemoryRecord) -> MemoryRecord:
        """The memory itself; one of another user or project is as unknown as one that does not exist."""
        # What is the user's own is recalled in every project.
        is_shared = record.level is Level.USER and not record.scope.project
        if not self.owns(replace(record.scope, project=self.project or "") if is_shared else record.scope):
            raise NotFound(f"no memory {record.id}")
        return record

    def ensure_editable(self, record: MemoryRecord) -> MemoryRecord:
        """The memory itself, if they may change it: who speaks for one project changes nothing for the others."""
        if not self.owns(self.ensure_visible(record).scope):
            raise NotAllowed("this is the user's own in all projects, and whoever asks here speaks for one project")
        return record

    def check_level(self, level: Level | None) -> None:
        """Raise if a new memory of that level would be seen in projects that are not theirs."""
        if self.project is not None and level is Level.USER:
            raise NotAllowed("level 'user' is for all projects, and whoever asks here speaks for one project")

    def check_can_read(self) -> None:
        """Raise if they may only write."""
        self._check_identified()
        if not self.reads:
            raise NotAllowed("this key may write, not read")

    def check_outcome_visible(self, outcome: Outcome) -> Outcome:
        """The outcome itself; a Conflict if it is what was there before, and they may only write."""
        if not self.reads and not outcome.changed:
            raise Conflict("that, or something surer in its place, is kept already, and this key may write, not read")
        return outcome

    def check_can_write(self) -> None:
        """Raise if they may only read."""
        self._check_identified()
        if not self.writes:
            raise NotAllowed("this key may read, not write")

    def check_admin(self) -> None:
        """Raise if this is not for them: it concerns everyone."""
        self._check_identified()
        if not self.admin:
            raise NotAllowed("this is for admin keys: it concerns everyone")

    def _check_identified(self) -> None:
        if self.is_unknown:
            raise StoreUnavailable("the ledger does not answer, so nobody can tell whether keys are asked for")

    def author(self, why: str = "", *, actor: Actor = Actor.AGENT) -> Author:
        """How history tells of what they change."""
        return Author(self.name, why, actor=actor)


LOCAL_CALLER = Caller(kind="local", name="local", admin=True)


def get_caller(request: HTTPConnection) -> Caller:
    """Who asks, as the middleware found out."""
    caller: Caller = request.scope["state"][STATE_CALLER]
    return caller


async def _caller_dependency(request: HTTPConnection) -> Caller:
    # What is declared and not async is called in another thread, which takes longer than most answers.
    return get_caller(request)


# What a door declares to be handed its caller.
CallerDep: TypeAlias = Annotated[Caller, Depends(_caller_dependency)]


def require_permissions(*, read_only: Collection[str] = (), write_only: Collection[str] = ()) -> Any:
    """For the routes of a door, by their names: those that only read though they are no GET, and those that only add.

    All others that change something tell what was there as well, so they take both rights.
    """

    async def check_permissions(request: Request, caller: CallerDep) -> None:
        name = request.scope["route"].name
        if name not in write_only:
            caller.check_can_read()
        if request.method not in ("GET", "HEAD") and name not in read_only:
            caller.check_can_write()

    return Depends(check_permissions)
