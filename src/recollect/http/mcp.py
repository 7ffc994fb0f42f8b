"""The route of MCP. The SDK is an extra, and is imported with the first request."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from recollect.config.settings import Settings
from recollect.errors import InvalidInput, MissingExtra
from recollect.http.auth.caller import get_caller
from recollect.http.auth.middleware import MCP_PATH, METADATA_PATH, describe_resource
from recollect.http.auth.rules import AuthRules
from recollect.http.errors import ErrorInfo
from recollect.http.params import decode_header
from recollect.http.proxy.asgi_io import AsgiApp
from recollect.mcp.access import McpAccess, McpClient
from recollect.model.text import validate_id

if TYPE_CHECKING:
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

_ACCESS = "mcp_access"
_INVALID_REQUEST, _INTERNAL_ERROR = -32600, -32603


def mcp_error(error: ErrorInfo) -> dict[str, Any]:
    """Return the body of an error that is answered before the protocol: JSON-RPC without the id of a request."""
    code = _INTERNAL_ERROR if error.status >= 500 else _INVALID_REQUEST
    return {"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": error.message}}


class McpEndpoint:
    """Serves MCP without sessions, so that any process answers any request."""

    def __init__(self, settings: Settings, rules: AuthRules) -> None:
        self._settings, self._rules = settings, rules
        if settings.mcp_tools:
            from recollect.mcp.tools import select_tools

            # An unknown group stops the start.
            select_tools(settings.mcp_tools)
        self._app: ASGIApp | None = None
        self._starting = asyncio.Lock()
        self._stop = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def routes(self) -> list[Route]:
        if not self._settings.mcp:
            return []
        paths = (MCP_PATH, f"{MCP_PATH}/{{project:path}}")
        routes = [Route(path, AsgiApp(self._handle), methods=["POST"], include_in_schema=False) for path in paths]
        if self._rules.tokens is not None:
            for path in (METADATA_PATH, f"{METADATA_PATH}{MCP_PATH}", f"{METADATA_PATH}{MCP_PATH}/{{project:path}}"):
                routes.append(Route(path, self._describe, methods=["GET"], include_in_schema=False))
        return routes

    async def close(self) -> None:
        self._stop.set()
        if self._task is not None:
            await self._task

    async def _describe(self, request: Request) -> JSONResponse:
        return JSONResponse(describe_resource(request.scope, self._settings, self._rules))

    async def _handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        access = _access_of(scope, self._settings)
        app = self._app or await self._start()
        await app({**scope, "state": {**scope["state"], _ACCESS: access}}, receive, send)

    async def _start(self) -> ASGIApp:
        async with self._starting:
            if self._app is None:
                try:
                    # The import takes a second, in which other requests are answered.
                    manager = await asyncio.to_thread(self._build)
                except ImportError:
                    raise MissingExtra("The MCP server", "mcp") from None
                started = asyncio.Event()
                self._task = asyncio.create_task(self._run(manager, started))
                await started.wait()
                self._app = manager.asgi_app
            return self._app

    def _build(self) -> StreamableHTTPSessionManager:
        from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
        from mcp.server.transport_security import TransportSecuritySettings

        from recollect.mcp.server import McpServer, request_state

        server = McpServer(lambda ctx: request_state(ctx)[_ACCESS], self._settings.mcp_tools)
        return StreamableHTTPSessionManager(
            server.sdk_server,
            json_response=True,
            stateless=True,
            max_request_body_size=self._settings.max_body_mb << 20,
            # HostGuardMiddleware has checked the host and the origin.
            security_settings=TransportSecuritySettings(enable_dns_rebinding_protection=False),
        )

    async def _run(self, manager: StreamableHTTPSessionManager, started: asyncio.Event) -> None:
        """Keep the tasks of the SDK in one task from start to end."""
        async with manager.run():
            started.set()
            await self._stop.wait()


def _access_of(scope: Scope, settings: Settings) -> McpAccess:
    """Return the memory of the caller's user and of the project in the path or header."""
    caller = get_caller(Request(scope))
    caller.check_can_read()
    headers = dict(scope["headers"])
    named = decode_header(headers.get(b"x-memory-project", b""))
    project = scope["path_params"].get("project", "").removesuffix("/")
    if named and project and named != project:
        raise InvalidInput(
            f"The path names the project {project!r}, and X-Memory-Project {named!r}; send one of them"
        )
    user = decode_header(headers.get(b"x-memory-user", b"")) or (
        settings.chat_user if caller.kind == "local" else None
    )
    client = McpClient(
        scope=caller.scope(caller.user or user, project or named),
        name="" if caller.kind == "local" else caller.name,
        branch=validate_id(decode_header(headers.get(b"x-memory-branch", b"")), name="X-Memory-Branch"),
        writes=caller.writes,
        own_project_only=caller.project is not None,
    )
    state = scope["app"].state
    return client.access(state.service_handle.get, settings, is_stopping=state.stopping.is_set)
