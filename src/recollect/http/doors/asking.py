"""Who asks, for the doors of designs that people know: the caller, the service and the settings."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from fastapi import Depends, Request

from recollect.http.auth import caller as auth
from recollect.http.auth.caller import Caller
from recollect.http.late_service import service_of
from recollect.service import Service
from recollect.settings import Settings


def caller_of(request: Request) -> Caller:
    """Who asks; on this machine, where nobody shows a key, a request names its user as a gateway would."""
    caller = auth.caller_of(request)
    named = request.headers.get(settings_of(request).gateway_user_header)
    return replace(caller, user=named) if caller.kind == "local" and named else caller


def settings_of(request: Request) -> Settings:
    """The settings of the application."""
    settings: Settings = request.app.state.settings
    return settings


async def _asking(request: Request) -> Caller:
    return caller_of(request)


async def _serving(request: Request) -> Service:
    return service_of(request)


async def _set(request: Request) -> Settings:
    return settings_of(request)


Asking = Annotated[Caller, Depends(_asking)]
Serving = Annotated[Service, Depends(_serving)]
Set = Annotated[Settings, Depends(_set)]

__all__ = ["Asking", "Caller", "Serving", "Set"]
