"""What OpenAPI says of who may ask: what can be shown, and where something has to be."""

from __future__ import annotations

from typing import Any

from recollect.http.auth.middleware import OPEN_PATHS
from recollect.http.auth.rules import AnonymousAccess, AuthRules

_GATEWAY_HEADER = "x-authz-user-id"


def add_security(schema: dict[str, Any], rules: AuthRules) -> None:
    """Tell the ways to say who is asking, and of every path which of them this server accepts."""
    schema["components"]["securitySchemes"] = _security_schemes(rules)
    requirements = _accepted_schemes(rules)
    for path, methods in schema["paths"].items():
        for operation in methods.values():
            operation["security"] = [] if path in OPEN_PATHS else requirements


def _security_schemes(rules: AuthRules) -> dict[str, Any]:
    header = rules.user_header.decode() or _GATEWAY_HEADER
    return {
        "key": {
            "type": "http",
            "scheme": "bearer",
            "bearerFormat": "rk_...",
            "description": "A key of this server; `recollect keys add` makes one. On this machine none is needed as "
            "long as there is none.",
        },
        "key_header": {
            "type": "apiKey",
            "in": "header",
            "name": "X-API-Key",
            "description": "The same where Authorization is for the endpoint behind the proxy.",
        },
        "gateway": {
            "type": "apiKey",
            "in": "header",
            "name": header,
            "description": "Who it is, as a gateway says whose address is in trusted_gateways.",
        },
        "token": {
            "type": "http",
            "scheme": "bearer",
            "bearerFormat": "JWT",
            "description": "A token of the issuer in jwt_issuer, where jwt_jwks_url is set.",
        },
    }


def _accepted_schemes(rules: AuthRules) -> list[dict[str, list[str]]]:
    """One of these is enough; an empty one says that nothing need be shown."""
    accepted = [
        *(("key", "key_header") if rules.keys else ()),
        *(("gateway",) if rules.gateways else ()),
        *(("token",) if rules.tokens is not None else ()),
    ]
    requirements: list[dict[str, list[str]]] = [{name: []} for name in accepted]
    return requirements if rules.anonymous is AnonymousAccess.NEVER else [{}, *requirements]
