"""Who asks, for the doors of designs that people know: the caller, the service and the settings."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from fastapi import Depends, Header, Request

from recollect.http.auth import caller as auth
from recollect.http.auth.caller import Caller
from recollect.http.header_text import DecodedHeader, redecode_header
from recollect.http.late_service import get_service
from recollect.model.text import MAX_ID_CHARS
from recollect.service import Service
from recollect.settings import Settings

_USER_HEADER, _PROJECT_HEADER = "X-Memory-User", "X-Memory-Project"
# As a header carries it, and as a scope takes it.
_NAME_CONSTRAINTS = {"max_length": MAX_ID_CHARS, "pattern": r"^[^\x00-\x1f\x7f-\x9f\u2028\u2029]*$"}
UserHeader = Annotated[
    str | None,
    Header(
        alias=_USER_HEADER, **_NAME_CONSTRAINTS, description="Whose memory it is, as for chats.", examples=["alex"]
    ),
    DecodedHeader,
]
ProjectHeader = Annotated[
    str | None,
    Header(
        alias=_PROJECT_HEADER, **_NAME_CONSTRAINTS, description="One of the user's projects.", examples=["hawaii"]
    ),
    DecodedHeader,
]


def get_caller_with_headers(request: Request) -> Caller:
    """Who asks; whoever may speak for any user speaks for the one that a header names, and for no other."""
    caller, headers = auth.get_caller(request), request.headers
    user, project = (
        redecode_header(headers.get(_USER_HEADER)) or None,
        redecode_header(headers.get(_PROJECT_HEADER)) or None,
    )
    return replace(caller, user=caller.user or user, named_project=project)


def get_settings(request: Request) -> Settings:
    """The settings of the application."""
    settings: Settings = request.app.state.settings
    return settings


async def _caller_dependency(request: Request, user: UserHeader = None, project: ProjectHeader = None) -> Caller:
    return get_caller_with_headers(request)


async def _service_dependency(request: Request) -> Service:
    return get_service(request)


async def _settings_dependency(request: Request) -> Settings:
    return get_settings(request)


CallerDep = Annotated[Caller, Depends(_caller_dependency)]
ServiceDep = Annotated[Service, Depends(_service_dependency)]
SettingsDep = Annotated[Settings, Depends(_settings_dependency)]

__all__ = ["Caller", "CallerDep", "ServiceDep", "SettingsDep"]
