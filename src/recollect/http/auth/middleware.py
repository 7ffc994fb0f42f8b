"""Whoever shows wrong keys again and again has to wait; how much is remembered of them is bounded."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from starlette.types import ASGIApp, Receive, Scope, Send

from recollect.errors import InvalidInput, MissingUser, NotAllowed, RecollectError, Unauthenticated, Unavailable
from recollect.http.auth.address import client_network, is_within
from recollect.http.auth.caller import LOCAL_CALLER, STATE_CALLER, STATE_KEY_REMOVED, Caller
from recollect.http.auth.credentials import Credentials, read_credentials, strip_own_keys
from recollect.http.auth.rules import AnonymousAccess, AuthRules
from recollect.http.errors import PROXY_ERROR_FORMATS, ErrorFormat, error_format_for, status_of
from recollect.http.proxy.asgi_io import send_json
from recollect.http.service_provider import ServiceProvider
from recollect.model.key import ApiKey
from recollect.model.scope import Scope as Whose
from recollect.service.api_keys import ApiKeys

_MAX_FAILURES = 10
_WINDOW_S = 60.0
_MAX_PEERS = 10_000


@dataclass(slots=True)
class _FailureWindow:
    started: float
    failures: int = 0


class Lockout:
    """Counts failures of each peer in a window of time."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._windows: dict[str, _FailureWindow] = {}

    def wait_s(self, address: str) -> float:
        """How long the peer has to wait before it may try again; 0 if it may."""
        if not self._windows:
            return 0.0
        window = self._windows.get(client_network(address))
        if window is None or window.failures < _MAX_FAILURES:
            return 0.0
        return max(0.0, window.started + _WINDOW_S - self._clock())

    def record_failure(self, address: str) -> None:
        """The peer showed a wrong key."""
        peer, moment = client_network(address), self._clock()
        window = self._windows.get(peer)
        if window is None or moment - window.started >= _WINDOW_S:
            # Anew, so that the oldest leave first when there are too many.
            self._windows.pop(peer, None)
            if len(self._windows) >= _MAX_PEERS:
                del self._windows[next(iter(self._windows))]
            window = self._windows[peer] = _FailureWindow(moment)
        window.failures += 1


# They tell nothing about anyone.
OPEN_PATHS = frozenset({
    "/live", "/health", "/ready", "/version", "/openapi.json",
    "/docs", "/docs/start.js", "/docs/swagger-ui-bundle.js", "/docs/swagger-ui.css",
})  # fmt: skip
_AUTHORIZATION = frozenset({b"authorization"})
_KEY_REQUIRED = "show a key: Authorization: Bearer rk_..., or X-API-Key; `recollect keys add` makes one"


class TooManyFailures(RecollectError):
    """This peer showed wrong keys again and again."""

    def __init__(self, wait_s: float) -> None:
        super().__init__("too many wrong keys came from this address: wait, then try again")
        self.wait_s = wait_s


class AuthMiddleware:
    """The first thing that a request meets, as bare ASGI middleware."""

    def __init__(
        self, app: ASGIApp, rules: AuthRules, error_formats: Mapping[str, ErrorFormat] = PROXY_ERROR_FORMATS
    ) -> None:
        self._app = app
        self._rules = rules
        self._error_formats = error_formats
        self._lockout = Lockout()
        self._gateway_headers = frozenset(filter(None, (rules.user_header, rules.project_header)))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket") or scope["path"] in OPEN_PATHS:
            await self._app(scope, receive, send)
            return
        try:
            # In place: whoever stands before sees what becomes of the request by what is put into it.
            scope.update(await self._authenticate(scope))
        except RecollectError as error:
            await _reject(scope, send, error, error_format_for(scope["path"], self._error_formats))
            return
        await self._app(scope, receive, send)

    async def _authenticate(self, scope: Scope) -> Scope:
        """The same request with its caller, without what was shown to us."""
        rules, headers = self._rules, scope["headers"]
        credentials = read_credentials(headers, user_header=rules.user_header, project_header=rules.project_header)
        address = scope["client"][0] if scope.get("client") else ""
        service_provider: ServiceProvider = scope["app"].state.service_provider
        trusts_forwarded = credentials.forwarded and is_within(address, rules.proxies)
        caller = await self._resolve_caller(
            credentials, address, credentials.forwarded if trusts_forwarded else address, service_provider
        )
        # From anyone but a gateway all of these are words of the client, and no other user's name may be among them.
        is_gateway = caller.kind == "gateway"
        users = credentials.named_users if is_gateway else (*credentials.users, *credentials.named_users)
        for user in users:
            caller.resolve_user(user)
        projects = credentials.named_projects if is_gateway else (*credentials.projects, *credentials.named_projects)
        for project in projects:
            caller.resolve_project(project)
        for what, names in (("users", users), ("projects", projects)):
            if len(set(filter(None, names))) > 1:
                raise NotAllowed(f"the headers name two {what}; a request is about one")
        if caller.user is None and any(credentials.users):
            # Nobody has made sure of it, but whoever may speak for any says so for whom this is.
            caller = replace(caller, user=next(filter(None, credentials.users)))
        stripped = {"gateway": self._gateway_headers, "jwt": _AUTHORIZATION}.get(caller.kind, frozenset())
        if stripped or credentials.key:
            headers = strip_own_keys(headers, also=stripped)
        key_removed = caller.kind in ("key", "jwt") and not any(name == b"authorization" for name, _ in headers)
        state = {**scope.get("state", {}), STATE_CALLER: caller, STATE_KEY_REMOVED: key_removed}
        return {**scope, "headers": headers, "state": state}

    async def _resolve_caller(
        self, credentials: Credentials, address: str, origin: str, service_provider: ServiceProvider
    ) -> Caller:
        rules = self._rules
        if credentials.key:
            return await self._caller_from_key(credentials.key, origin, service_provider.get().api_keys)
        if rules.tokens is not None and credentials.token:
            return await self._caller_from_token(credentials.token, origin)
        if rules.gateways and is_within(address, rules.gateways):
            return _caller_from_gateway(credentials, rules)
        if rules.anonymous is AnonymousAccess.ALWAYS:
            return LOCAL_CALLER
        if (
            rules.anonymous is AnonymousAccess.WITHOUT_KEYS
            and (caller := await _local_caller(service_provider)) is not None
        ):
            return caller
        if rules.gateways and credentials.users:
            raise Unauthenticated("this address is none of the gateways whose headers are believed")
        raise Unauthenticated(_KEY_REQUIRED if rules.keys else "show who is asking: there is no credential here")

    async def _caller_from_key(self, text: str, address: str, keyring: ApiKeys) -> Caller:
        if not self._rules.keys:
            raise Unauthenticated("keys are not accepted here")
        if (wait_s := self._lockout.wait_s(address)) and not keyring.is_cached(text):
            raise TooManyFailures(wait_s)
        try:
            return _to_caller(await keyring.authenticate(text))
        except Unauthenticated:
            self._lockout.record_failure(address)
            raise

    async def _caller_from_token(self, token: str, address: str) -> Caller:
        tokens = self._rules.tokens
        assert tokens is not None
        if (wait_s := self._lockout.wait_s(address)) and not tokens.is_cached(token):
            raise TooManyFailures(wait_s)
        try:
            return await tokens.verify(token)
        except Unauthenticated:
            self._lockout.record_failure(address)
            raise


async def _local_caller(service_provider: ServiceProvider) -> Caller | None:
    """Who asks without a key from here; None once there are keys.

    While the ledger is away nobody can tell whether there are: chats go on and are kept, and nothing is told.
    """
    try:
        return None if await service_provider.get().api_keys.is_used() else LOCAL_CALLER
    except Unavailable:
        return Caller(kind="local", name="local", reads=False, is_unknown=True)


def _to_caller(key: ApiKey) -> Caller:
    return Caller(
        kind="key",
        name=f"key:{key.name}",
        user=key.user,
        project=key.project,
        admin=key.admin,
        reads=key.reads,
        writes=key.writes,
    )


def _caller_from_gateway(credentials: Credentials, rules: AuthRules) -> Caller:
    # Two of them are the client's beside the gateway's, and nobody can tell which is which.
    header = rules.user_header.decode()
    if not any(credentials.users):
        raise MissingUser(f"the header {header} of the gateway is missing, which names the user")
    if len(credentials.users) > 1 or len(credentials.projects) > 1:
        raise Unauthenticated(f"the header {header} of the gateway, or that of the project, came more than once")
    try:
        memory_scope = Whose(credentials.users[0], credentials.projects[0] if credentials.projects else "")
    except InvalidInput as error:
        raise Unauthenticated(f"the gateway names no user: {error}") from None
    return Caller(kind="gateway", name="gateway", user=memory_scope.user, project=memory_scope.project or None)


async def _reject(scope: Scope, send: Send, error: RecollectError, error_format: ErrorFormat) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008, "reason": ""})
        return
    status = 429 if isinstance(error, TooManyFailures) else status_of(error)
    headers: Mapping[str, str] = {}
    if status == 401:
        headers = {"WWW-Authenticate": 'Bearer realm="recollect"'}
    elif isinstance(error, TooManyFailures):
        headers = {"Retry-After": str(max(1, math.ceil(error.wait_s)))}
    elif error.retryable:
        headers = {"Retry-After": "1"}
    body = error_format(status, type(error).__name__, str(error))
    await send_json(send, status, body, headers)
