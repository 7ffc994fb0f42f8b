"""Paths under /v1 that are ours: whatever of them no route answers must not go to the endpoint behind the proxy."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

# Of mem0's platform also what this server does not have.
_PATHS = ("memory", "memories", "ping", "entities", "batch", "feedback", "exports", "summary")
_METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]


async def _not_here(request: Request) -> Response:
    told = f"{request.method} {request.url.path} is no route of this server; /docs lists those it has"
    return JSONResponse({"error": {"code": "NOT_FOUND", "message": told}, "detail": told}, 404)


def guards() -> list[BaseRoute]:
    """Routes to be put behind those of the doors and before those of the proxy."""
    paths = (path for name in _PATHS for path in (f"/v1/{name}", f"/v1/{name}/{{rest:path}}"))
    return [Route(path, _not_here, methods=_METHODS) for path in paths]
