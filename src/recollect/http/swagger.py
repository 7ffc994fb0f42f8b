"""The page where a person tries the API: Swagger UI, served from here, so that it works without the internet."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from pathlib import Path

from fastapi import APIRouter
from fastapi.responses import FileResponse, HTMLResponse, Response

from recollect.errors import MissingExtra

swagger_router = APIRouter(include_in_schema=False)
# The package is not imported: its wheel carries the files, and that is all we want of it.
_ASSET_PACKAGE = "fastapi_offline"
_FILES = {"swagger-ui-bundle.js": "text/javascript", "swagger-ui.css": "text/css"}
# Nothing runs but what comes from here. Swagger UI gives its elements styles of their own.
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
  // Nothing is asked of any other server.
  validatorUrl: null,
});
"""


@swagger_router.get("/docs")
async def docs() -> HTMLResponse:
    """The page."""
    return HTMLResponse(_HTML, headers=_HEADERS)


@swagger_router.get("/docs/start.js")
async def start() -> Response:
    """What sets the page up."""
    return Response(_START_SCRIPT, media_type="text/javascript", headers=_HEADERS)


@swagger_router.get("/docs/swagger-ui-bundle.js")
async def script() -> FileResponse:
    """The script."""
    return _serve_asset("swagger-ui-bundle.js")


@swagger_router.get("/docs/swagger-ui.css")
async def style() -> FileResponse:
    """How it looks."""
    return _serve_asset("swagger-ui.css")


def _serve_asset(name: str) -> FileResponse:
    return FileResponse(_asset_folder() / name, media_type=_FILES[name], headers=_HEADERS)


@cache
def _asset_folder() -> Path:
    spec = find_spec(_ASSET_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise MissingExtra("the page for trying the API", "server")
    return Path(spec.submodule_search_locations[0]) / "static"
