"""The doors of designs and services that people know, and how each refuses before it is reached."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.routing import BaseRoute

from recollect.http.auth.shapes import PROXY_ERROR_FORMATS, ErrorFormat
from recollect.http.doors import agent, mem0_platform, mem0_server, memory, react, sessions
from recollect.http.doors.door import CompatRouter
from recollect.http.doors.refusals import ErrorInfo

COMPAT_ROUTERS: tuple[CompatRouter, ...] = (
    memory.router,
    sessions.router,
    react.router,
    agent.router,
    mem0_platform.router,
    mem0_server.router,
)


def compat_routes() -> list[BaseRoute]:
    """The routes one by one, so that whoever walks the app's routes sees each of them."""
    return [route for router in COMPAT_ROUTERS for route in router.routes]


def compat_error_formats() -> Mapping[str, ErrorFormat]:
    """How each door refuses, by how its paths begin."""
    formats: dict[str, ErrorFormat] = {}
    for router in COMPAT_ROUTERS:
        for route in router.routes:
            path: str = getattr(route, "path", "")
            formats[path.partition("{")[0]] = _error_format(router)
    return formats


def error_formats() -> Mapping[str, ErrorFormat]:
    """How whoever may not ask is told so, by how a path begins."""
    return {**PROXY_ERROR_FORMATS, **compat_error_formats()}


def _error_format(router: CompatRouter) -> ErrorFormat:
    def format_error(status: int, kind: str, message: str) -> Mapping[str, Any]:
        return router.render_error(ErrorInfo(status=status, message=message, kind=kind))[1]

    return format_error
