"""The API documentation page at /docs: Swagger UI from local files, so that it works offline."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from pathlib import Path

from fastapi import APIRouter, Request
from fastapi.responses import FileResponse, HTMLResponse, Response

from recollect.errors import MissingExtra

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
