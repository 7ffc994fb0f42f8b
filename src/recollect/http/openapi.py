"""The OpenAPI document (what FastAPI derives, with our errors, tags, security and the proxy's paths) and its page."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.openapi.utils import get_openapi
from fastapi.responses import FileResponse, HTMLResponse, Response

from recollect.errors import MissingExtra
from recollect.http.auth.middleware import OPEN_PATHS
from recollect.http.auth.rules import AnonymousAccess, AuthRules
from recollect.http.errors import error_schemas
from recollect.http.params import SCOPE_HEADERS, SCOPE_PARAMS
from recollect.http.proxy.openapi import proxy_paths, proxy_schemas
from recollect.http.routing import Router

_TAGS = {
    "memories": "REST API: memories, one at a time and in lists.",
    "graph": "REST API: how memories, names, keys and sessions are related.",
    "search and recall": "REST API: search memories, and recall them for a prompt.",
    "turns and sessions": "REST API: remember messages, and the sessions they belong to.",
    "coding agents": "REST API: hooks of coding agents.",
    "history and undo": "REST API: changes of memories, and undo.",
    "reviews": "REST API: memories that wait for a person's approval.",
    "jobs": "REST API: background jobs, such as learning.",
    "changes": "REST API: a stream of changes.",
    "export and import": "REST API: all memories of a user as JSON lines.",
    "erasing": "REST API: erase for good, with a receipt.",
    "sample": "REST API: sample data, to try things with.",
    "login": "REST API: the login of the web page, and who the caller is.",
    "usage and upkeep": "REST API: statistics, LLM usage and maintenance.",
    "admin": "REST API: operations on all users, for admin keys.",
    "proxy": "OpenAI's Chat Completions API, with memory.",
    "responses": "OpenAI's Responses API, with memory.",
    "conversations": "OpenAI's Conversations API.",
    "memory": "Memories of a user and their projects: /v1/memory.",
    "sessions": "Memories of a session: /api/sessions.",
    "react": "Facts, episodes and conversations for a reasoning agent: /api/react.",
    "agent": "An agent that reasons, uses tools and remembers: /v1/agent.",
    "mem0 platform": "For clients of mem0's platform; unknown parameters are ignored.",
    "mem0 server": "For clients of the server that mem0 users run themselves.",
    "health": "Liveness, readiness, version and metrics.",
}
_SCOPE_NAMES = {name.casefold() for name in (*SCOPE_PARAMS, *SCOPE_HEADERS)}


def install_openapi(app: FastAPI, rules: AuthRules, routers: Sequence[Router]) -> None:
    """Let the app describe itself with the corrections below."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _build_openapi(app, rules, routers)
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]


def _build_openapi(app: FastAPI, rules: AuthRules, routers: Sequence[Router]) -> dict[str, Any]:
    schema: dict[str, Any] = get_openapi(
        title=app.title,
        version=app.version,
        description=app.description,
        routes=app.routes,
        tags=[{"name": name, "description": description} for name, description in _TAGS.items()],
        servers=[{"url": "/", "description": "This server."}],
    )
    deleting = {name for router in routers for name in router.deleting}
    for methods in schema["paths"].values():
        for method, operation in methods.items():
            # Validation errors are answered with 400.
            operation["responses"].pop("422", None)
            deletes = method == "delete" or operation["operationId"] in deleting
            for parameter in operation.get("parameters", ()):
                parameter["schema"] = _without_null(parameter["schema"])
                if deletes and parameter["name"].casefold() in _SCOPE_NAMES:
                    parameter["schema"]["minLength"] = 1
    schemas = schema["components"]["schemas"]
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    models = dict.fromkeys(router.error_model for router in routers)
    schemas |= proxy_schemas() | error_schemas(models)
    schema["paths"] |= proxy_paths()
    _add_security(schema, rules)
    return schema


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of an optional parameter without null, which a parameter cannot be."""
    kinds = [kind for kind in schema.get("anyOf", ()) if kind != {"type": "null"}]
    if len(kinds) != 1:
        return schema
    return {**{name: each for name, each in schema.items() if name != "anyOf"}, **kinds[0]}


def _add_security(schema: dict[str, Any], rules: AuthRules) -> None:
    """Describe the ways to authenticate, and which of them each path accepts."""
    schema["components"]["securitySchemes"] = {
        "key": {
            "type": "http",
            "scheme": "bearer",
            "bearerFormat": "rk_...",
            "description": "An API key, created by `recollect keys add`. A local server without keys needs none.",
        },
        "key_header": {
            "type": "apiKey",
            "in": "header",
            "name": "X-API-Key",
            "description": "An API key, where Authorization is needed for the upstream.",
        },
        "gateway": {
            "type": "apiKey",
            "in": "header",
            "name": rules.user_header.decode(),
            "description": "The user, named by a gateway whose address is in trusted_gateways.",
        },
        "token": {
            "type": "http",
            "scheme": "bearer",
            "bearerFormat": "JWT",
            "description": "A token of the issuer in jwt_issuer, if jwt_jwks_url is set.",
        },
    }
    accepted = [
        *(("key", "key_header") if rules.keys else ()),
        *(("gateway",) if rules.gateways else ()),
        *(("token",) if rules.tokens is not None else ()),
    ]
    requirements: list[dict[str, list[str]]] = [{name: []} for name in accepted]
    if rules.anonymous is not AnonymousAccess.NEVER:
        requirements.insert(0, {})
    for path, methods in schema["paths"].items():
        for operation in methods.values():
            operation["security"] = [] if path in OPEN_PATHS else requirements


swagger_router = APIRouter(include_in_schema=False)
# Only local scripts run. Swagger UI sets inline styles.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {"Content-Security-Policy": _POLICY, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer"}
_HTML = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Recollect: the API</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="/docs/swagger-ui.css">
</head>
<body>
<div id="api"></div>
<script src="/docs/swagger-ui-bundle.js"></script>
<script src="/docs/start.js"></script>
</body>
</html>
"""
_START_SCRIPT = """SwaggerUIBundle({
  url: "/openapi.json",
  dom_id: "#api",
  deepLinking: true,
  filter: true,
  tryItOutEnabled: true,
  docExpansion: "none",
  // Sends nothing to other servers.
  validatorUrl: null,
});
"""


@swagger_router.get("/docs")
async def docs() -> HTMLResponse:
    """Return the page."""
    return HTMLResponse(_HTML, headers=_HEADERS)


@swagger_router.get("/docs/start.js")
async def start() -> Response:
    """Return the script that starts Swagger UI."""
    return Response(_START_SCRIPT, media_type="text/javascript", headers=_HEADERS)


@swagger_router.get("/docs/swagger-ui-bundle.js")
@swagger_router.get("/docs/swagger-ui.css")
async def asset(request: Request) -> FileResponse:
    """Return the script or the style sheet of Swagger UI."""
    return FileResponse(_assets() / request.url.path.rpartition("/")[2], headers=_HEADERS)


@cache
def _assets() -> Path:
    # The package is not imported: only the files in its wheel are used.
    spec = find_spec("fastapi_offline")
    if spec is None or not spec.submodule_search_locations:
        raise MissingExtra("the API documentation page", "server")
    return Path(spec.submodule_search_locations[0]) / "static"
