"""The names a server may be called by: a web page that points its own name at us must not be let in.

A browser on this machine can be led to send requests here; it always says which name it was led by.
"""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

from recollect.http.auth.address import is_loopback, read_address
from recollect.http.auth.shapes import shape_of
from recollect.http.proxy.client import answer_json
from recollect.settings import Settings

_MESSAGE = "this server is not called by that name; add it to allowed_hosts if it is trusted"


def allowed_hosts(settings: Settings) -> frozenset[str] | None:
    """The names besides addresses and localhost; None for any, where keys are asked for anyway."""
    named = frozenset(filter(None, (each.strip().lower() for each in settings.allowed_hosts.split(","))))
    if not named and not is_loopback(settings.host):
        return None
    return named


class Hosts:
    """Refuses requests that were made to another name."""

    def __init__(self, app: ASGIApp, allowed: frozenset[str] | None) -> None:
        self._app = app
        self._allowed = allowed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._allowed is None or scope["type"] not in ("http", "websocket") or self._is_ours(scope):
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008, "reason": ""})
        else:
            body = shape_of(scope["path"])(421, "MisdirectedRequest", _MESSAGE)
            await answer_json(send, 421, body)

    def _is_ours(self, scope: Scope) -> bool:
        assert self._allowed is not None
        named = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
        # A client of HTTP/1.0 may leave it out, a browser never does.
        return all(_is_safe(host) or host_of(host) in self._allowed for host in named)


def _is_safe(host: str) -> bool:
    """An address or localhost: no name that someone else could point at us."""
    name = host_of(host)
    return name == "localhost" or read_address(name) is not None


def host_of(value: str) -> str:
    """The name without its port."""
    value = value.strip().lower()
    if value.startswith("["):
        return value[1:].partition("]")[0]
    return value.rpartition(":")[0] if value.count(":") == 1 else value.rstrip(".")
