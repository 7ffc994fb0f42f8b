"""All routes of this door."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.routing import BaseRoute

from recollect.http.api.admin import admin_router
from recollect.http.api.erasure import erasure_router
from recollect.http.api.history import changes_router, history_router
from recollect.http.api.jobs import jobs_router
from recollect.http.api.maintenance import maintenance_router
from recollect.http.api.memories import memories_router, reviews_router
from recollect.http.api.search import search_router
from recollect.http.api.sessions import sessions_router
from recollect.http.api.transfer import transfer_router
from recollect.http.compat import agent, memory, react, sessions
from recollect.http.compat.mem0 import platform, server
from recollect.http.compat.routing import CompatRouter
from recollect.http.errors import PROXY_ERROR_FORMATS, ErrorFormat, ErrorInfo

_API_ROUTERS = (
    memories_router,
    search_router,
    sessions_router,
    history_router,
    reviews_router,
    jobs_router,
    changes_router,
    transfer_router,
    erasure_router,
    maintenance_router,
    admin_router,
)


def api_routes() -> list[BaseRoute]:
    """The routes one by one, so that whoever walks the app's routes sees each of them."""
    return [route for router in _API_ROUTERS for route in router.routes]


COMPAT_ROUTERS: tuple[CompatRouter, ...] = (
    memory.router,
    sessions.router,
    react.router,
    agent.router,
    platform.router,
    server.router,
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
