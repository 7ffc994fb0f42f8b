"""OAuth protected-resource metadata (RFC 9728): where a client of MCP gets a token."""

from __future__ import annotations

from typing import Any

from starlette.types import Scope

from recollect.config.settings import Settings
from recollect.http.auth.cookie import forwarded_headers, is_https
from recollect.http.auth.rules import AuthRules

MCP_PATH = "/mcp"
METADATA_PATH = "/.well-known/oauth-protected-resource"


def is_mcp_path(path: str) -> bool:
    return path == MCP_PATH or path.startswith(f"{MCP_PATH}/")


def describe_resource(scope: Scope, settings: Settings, rules: AuthRules) -> dict[str, Any]:
    """Return the metadata of /mcp, which are those of each project as well: tokens have one audience."""
    return {
        "resource": settings.mcp_url.rstrip("/") or f"{_origin(scope, rules)}{MCP_PATH}",
        "authorization_servers": [settings.jwt_issuer],
        "bearer_methods_supported": ["header"],
        "resource_name": "Recollect",
    }


def challenge(scope: Scope, rules: AuthRules) -> str:
    """Return the WWW-Authenticate header of a rejected request; that of MCP names the metadata."""
    header = 'Bearer realm="recollect"'
    if rules.tokens is None or not is_mcp_path(scope["path"]):
        return header
    return f'{header}, resource_metadata="{_origin(scope, rules)}{METADATA_PATH}{MCP_PATH}"'


def _origin(scope: Scope, rules: AuthRules) -> str:
    """Return the address of this server as the client sees it."""
    forwarded = forwarded_headers(scope, rules.proxies)
    host = next(value for name, value in scope["headers"] if name == b"host").decode("latin-1")
    return f"http{'s' if is_https(scope, forwarded) else ''}://{host}{rules.base_path}"
