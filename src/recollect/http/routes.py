"""All routers of the server, and the error format of each path."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.routing import BaseRoute

from recollect.http.api.admin import keys_router
from recollect.http.api.graph import graph_router
from recollect.http.api.history import changes_router, history_router
from recollect.http.api.hooks import hooks_router
from recollect.http.api.identity import login_router, me_router
from recollect.http.api.memories import memories_router, reviews_router, search_router
from recollect.http.api.operations import admin_router, jobs_router, maintenance_router
from recollect.http.api.recalls import recalls_router
from recollect.http.api.sample import sample_router
from recollect.http.api.sessions import sessions_router
from recollect.http.api.transfer import admin_erasure_router, erasure_router, transfer_router
from recollect.http.auth.resource_metadata import MCP_PATH
from recollect.http.compat import agent, memory, react, sessions
from recollect.http.compat.mem0 import routes as mem0
from recollect.http.errors import PROXY_ERROR_FORMATS, ErrorFormat, api_error
from recollect.http.mcp import mcp_error
from recollect.http.routing import API_PREFIX, Router

API_ROUTERS: tuple[Router, ...] = (
    memories_router,
    search_router,
    recalls_router,
    sessions_router,
    hooks_router,
    history_router,
    graph_router,
    reviews_router,
    jobs_router,
    changes_router,
    transfer_router,
    erasure_router,
    maintenance_router,
    sample_router,
    login_router,
    me_router,
    admin_router,
    keys_router,
    admin_erasure_router,
)
COMPAT_ROUTERS: tuple[Router, ...] = (
    memory.router,
    sessions.router,
    react.router,
    agent.router,
    mem0.platform,
    mem0.server,
)


def routes_of(routers: tuple[Router, ...]) -> list[BaseRoute]:
    return [route for router in routers for route in router.routes]


def error_formats() -> Mapping[str, ErrorFormat]:
    """Return the error format of each interface, by the prefix of its paths."""
    formats = {**PROXY_ERROR_FORMATS, API_PREFIX: api_error, MCP_PATH: mcp_error}
    for router in COMPAT_ROUTERS:
        for route in router.routes:
            path: str = getattr(route, "path", "")
            formats[path.partition("{")[0]] = router.error_format
    return formats
