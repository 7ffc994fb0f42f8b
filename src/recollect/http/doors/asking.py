"""Who asks, for the doors of designs that people know: the caller, the service and the settings."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from fastapi import Depends, Header, Request

from recollect.http.auth import caller as auth
from recollect.http.auth.caller import Caller
from recollect.http.header_text import SENT, as_sent
from recollect.http.late_service import service_of
from recollect.model.text import MAX_ID_CHARS
from recollect.service import Service
from recollect.settings import Settings

_USER, _PROJECT = "X-Memory-User", "X-Memory-Project"
# As a header carries it, and as a scope takes it.
_NAMED = {"max_length": MAX_ID_CHARS, "pattern": r"^[^\x00-\x1f\x7f-\x9f\u2028\u2029]*$"}
NamedUser = Annotated[
    str | None,
    Header(alias=_USER, **_NAMED, description="Whose memory it is, as for chats.", examples=["alex"]),
    SENT,
]
NamedProject = Annotated[
    str | None, Header(alias=_PROJECT, **_NAMED, description="One of the user's projects.", examples=["hawaii"]), SENT
]


def caller_of(request: Request) -> Caller:
    """Who asks; whoever may speak for any user speaks for the one that a header names, and for no other."""
    caller, headers = auth.caller_of(request), request.headers
    user, project = as_sent(headers.get(_USER)) or None, as_sent(headers.get(_PROJECT)) or None
    return replace(caller, user=caller.user or user, named_project=project)


def settings_of(request: Request) -> Settings:
    """The settings of the application."""
    settings: Settings = request.app.state.settings
    return settings


async def _asking(request: Request, user: NamedUser = None, project: NamedProject = None) -> Caller:
    return caller_of(request)


async def _serving(request: Request) -> Service:
    return service_of(request)


async def _set(request: Request) -> Settings:
    return settings_of(request)


Asking = Annotated[Caller, Depends(_asking)]
Serving = Annotated[Service, Depends(_serving)]
Set = Annotated[Settings, Depends(_set)]

__all__ = ["Asking", "Caller", "Serving", "Set"]
