"""The caller of a request: the user and project they are limited to, and their permissions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Literal, TypeAlias

from fastapi import Depends
from starlette.requests import HTTPConnection
from starlette.types import Scope as AsgiScope

from recollect.errors import Conflict, MissingUser, NotAllowed, NotFound, StoreUnavailable
from recollect.model.change import Actor, Author, ChangeKind, Outcome
from recollect.model.memory import MemoryRecord
from recollect.model.scope import Level, Scope
from recollect.service.handle import ServiceHandle

# Keys in the state of a request: the caller, and whether a credential of ours was removed from Authorization.
STATE_CALLER, STATE_KEY_REMOVED = "caller", "key_removed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """The sender of a request. Without a user they may act for any; `name` is their name in the history."""

    kind: Literal["local", "key", "gateway", "jwt"]
    name: str
    user: str | None = None
    project: str | None = None
    # The project in a header of a caller who may name any.
    named_project: str | None = None
    admin: bool = False
    reads: bool = True
    writes: bool = True
    # Whether the ledger was unavailable during authentication: chats are served, and nothing is read.
    is_unknown: bool = False
    # Whether the key came in the page's cookie.
    by_cookie: bool = False
    # Whether each access to a user's memories is recorded, because the cookie's key is for several users.
    is_audited: bool = False
    # Whether the key is a person's.
    person: bool = False

    def scope(
        self, user_id: str | None = None, project_id: str | None = None, session_id: str | None = None
    ) -> Scope:
        """Return the requested scope; NotAllowed for another user or project, MissingUser without a user."""
        user = self.resolve_user(user_id)
        if not user:
            raise MissingUser("Name the user: the credentials are not limited to one")
        return Scope(user, self.resolve_project(project_id) or "", session_id or "")

    def resolve_user(self, requested: str | None) -> str | None:
        """Return the user the caller is limited to, or else the requested one; NotAllowed if they differ."""
        if self.user is None:
            return requested
        if requested and requested != self.user:
            raise NotAllowed("The request names another user than its credentials or headers")
        return self.user

    def with_user(self, user: str | None) -> Caller:
        return replace(self, user=self.resolve_user(user) or None)

    def resolve_project(self, requested: str | None) -> str | None:
        """Return the project the caller is limited to, or else the requested one; NotAllowed if they differ."""
        if self.project is None:
            if requested and self.named_project and requested != self.named_project:
                raise NotAllowed("The request names another project than X-Memory-Project")
            return requested or self.named_project
        if requested and requested != self.project:
            raise NotAllowed("The request names another project than its credentials")
        return self.project

    def owns(self, scope: Scope) -> bool:
        """Return whether the scope is inside the caller's user and project."""
        return self.user in (None, scope.user) and self.project in (None, scope.project)

    def ensure_visible(self, record: MemoryRecord) -> MemoryRecord:
        """Return the memory; NotFound for one of another user or project, as if it did not exist."""
        # A memory of the user's own level is recalled in every project.
        is_shared = record.level is Level.USER and not record.scope.project
        if not self.owns(replace(record.scope, project=self.project or "") if is_shared else record.scope):
            raise NotFound(f"no memory {record.id}")
        return record

    def ensure_editable(self, record: MemoryRecord) -> MemoryRecord:
        """Return the memory; NotAllowed if it belongs to all projects and the caller is limited to one."""
        if not self.owns(self.ensure_visible(record).scope):
            raise NotAllowed("The memory belongs to all projects, and the credentials are limited to one")
        return record

    def check_level(self, level: Level | None) -> None:
        """Raise NotAllowed if a new memory of this level would be visible outside of the caller's project."""
        if self.project is not None and level is Level.USER:
            raise NotAllowed("Level 'user' is for all projects, and the credentials are limited to one")

    def check_can_read(self) -> None:
        self._check_identified()
        if not self.reads:
            raise NotAllowed("This key may write, not read")

    def check_outcome_visible(self, outcome: Outcome) -> Outcome:
        """Return the outcome; Conflict if it shows an existing memory to a caller who may only write."""
        if not self.reads and not (outcome.changed and outcome.verb is not ChangeKind.UPDATE):
            raise Conflict("That memory, or a more certain one, exists already, and this key may write, not read")
        return outcome

    def check_can_write(self) -> None:
        self._check_identified()
        if not self.writes:
            raise NotAllowed("This key may read, not write")

    def check_admin(self) -> None:
        self._check_identified()
        if not self.admin:
            raise NotAllowed("This concerns all users and needs an admin key")

    def _check_identified(self) -> None:
        if self.is_unknown:
            raise StoreUnavailable("The ledger is unavailable, so that credentials cannot be checked")

    @property
    def may_act_as_person(self) -> bool:
        """Whether the caller's changes may be those of a person: a key without that right is a program's."""
        return self.kind != "key" or self.admin or self.person

    def author(self, why: str = "", *, actor: Actor = Actor.AGENT) -> Author:
        """Return the author of the caller's changes for the history."""
        return Author(self.name, why, actor=actor)


LOCAL_CALLER = Caller(kind="local", name="local", admin=True)


def get_caller(request: HTTPConnection) -> Caller:
    caller: Caller = request.scope["state"][STATE_CALLER]
    return caller


async def _caller_dependency(request: HTTPConnection) -> Caller:
    # FastAPI calls a dependency that is not async in a thread, which takes longer than most answers.
    return get_caller(request)


CallerDep: TypeAlias = Annotated[Caller, Depends(_caller_dependency)]


async def record_access(scope: AsgiScope, caller: Caller, user: str) -> None:
    """Record the request in the audit log, if the caller logged in with a key for several users."""
    if not caller.is_audited:
        return
    handle: ServiceHandle = scope["app"].state.service_handle
    path = getattr(scope.get("route"), "path", scope["path"])
    await handle.get().audit.record(caller.name, user, f"{scope['method']} {path}")
