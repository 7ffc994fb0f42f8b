"""Who asks: the caller that a request comes from, the scope they may name, and the service that answers them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, HTTPException, Request

from recollect.errors import InvalidInput
from recollect.model.asked import read_by, read_scope
from recollect.model.change import By
from recollect.model.scope import Scope
from recollect.service import Service
from recollect.settings import Settings

# Set by a gateway that has made sure who it is.
USER_HEADER = "x-authz-user-id"


class MissingUser(InvalidInput):
    """Nobody was named whose memory it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who sent a request: bound to one user, and to a project of theirs, or free to name any."""

    user: str | None = None
    project: str | None = None
    admin: bool = True
    name: str = "http"

    def scope(
        self, user_id: str | None = None, project_id: str | None = None, session_id: str | None = None
    ) -> Scope:
        """The scope of the ids that were named; whoever is bound need not name their own, and may name no other."""
        for own, named in ((self.user, user_id), (self.project, project_id)):
            if own is not None and named and named != own:
                raise HTTPException(403, "this memory belongs to someone else; leave the id out to use your own")
        user = user_id or self.user
        if not user:
            raise MissingUser(f"whose memory is it? Name a user, or have a gateway send {USER_HEADER}")
        return read_scope(user, project_id or self.project, session_id)


def by_of(caller: Caller) -> By:
    """Who changes something, as history tells it."""
    return read_by(caller.name)


def caller_of(request: Request) -> Caller:
    """The caller of a request."""
    return Caller(user=request.headers.get(USER_HEADER) or None)


def service_of(request: Request) -> Service:
    """The service of the application."""
    service: Service = request.app.state.service
    return service


def settings_of(request: Request) -> Settings:
    """The settings of the application."""
    settings: Settings = request.app.state.settings
    return settings


Asking = Annotated[Caller, Depends(caller_of)]
Serving = Annotated[Service, Depends(service_of)]
Set = Annotated[Settings, Depends(settings_of)]
