"""Authentication: finds out who sends a request, and hides the credentials from everything after it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from starlette.types import ASGIApp, Receive, Scope, Send

from recollect.errors import InvalidInput, MissingUser, NotAllowed, RecollectError, Unauthenticated, Unavailable
from recollect.http.auth.address import client_network, is_within
from recollect.http.auth.caller import LOCAL_CALLER, STATE_CALLER, STATE_KEY_REMOVED, Caller
from recollect.http.auth.rules import AnonymousAccess, AuthRules
from recollect.http.auth.tokens import TokenVerifier
from recollect.http.errors import ErrorFormat, ErrorInfo, send_error, status_of
from recollect.http.params import decode_header
from recollect.model.key import KEY_PREFIX, ApiKey
from recollect.model.scope import Scope as MemoryScope
from recollect.service.api_keys import ApiKeys
from recollect.service.handle import ServiceHandle

MAX_FAILURES = 10
WINDOW_S = 60.0
MAX_PEERS = 10_000
# Paths that reveal nothing about anyone.
OPEN_PATHS = frozenset({
    "/live", "/health", "/ready", "/version", "/openapi.json",
    "/docs", "/docs/start.js", "/docs/swagger-ui-bundle.js", "/docs/swagger-ui.css",
})  # fmt: skip
# Headers that reverse proxies add.
_PROXY_HEADERS = frozenset({
    b"forwarded", b"via", b"x-forwarded-for", b"x-forwarded-host", b"x-forwarded-port", b"x-forwarded-proto",
    b"x-forwarded-server", b"x-real-ip", b"x-client-ip", b"x-cluster-client-ip", b"x-original-forwarded-for",
    b"x-envoy-external-address", b"true-client-ip", b"cf-connecting-ip", b"fly-client-ip",
})  # fmt: skip
_PROXY_WITHOUT_AUTH = (
    "This request came through a reverse proxy (header {header}), and no authentication is configured, so that "
    "everybody would be the owner: create a key with `recollect keys add`, or set trusted_gateways or jwt_jwks_url; "
    "allow_anonymous_proxy = true serves it all the same"
)
_KEY_REQUIRED = "Send a key in Authorization: Bearer rk_..., or in X-API-Key; `recollect keys add` creates one"


@dataclass(slots=True)
class _FailureWindow:
    started: float
    failures: int = 0


class Lockout:
    """Counts the failures of each peer in a window of time; the number of peers is bounded."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._windows: dict[str, _FailureWindow] = {}

    def wait_s(self, address: str) -> float:
        """Return how long the peer must wait before its next attempt; 0 if it need not."""
        window = self._windows.get(client_network(address)) if self._windows else None
        if window is None or window.failures < MAX_FAILURES:
            return 0.0
        return max(0.0, window.started + WINDOW_S - self._clock())

    def record_failure(self, address: str) -> None:
        """Count a wrong credential of the peer."""
        peer, moment = client_network(address), self._clock()
        window = self._windows.get(peer)
        if window is None or moment - window.started >= WINDOW_S:
            # Inserted at the end, so that the oldest are dropped first.
            self._windows.pop(peer, None)
            if len(self._windows) >= MAX_PEERS:
                del self._windows[next(iter(self._windows))]
            window = self._windows[peer] = _FailureWindow(moment)
        window.failures += 1


class TooManyFailures(RecollectError):
    """A peer sent too many wrong credentials."""

    def __init__(self, wait_s: float) -> None:
        super().__init__("Too many wrong credentials from this address; wait before the next attempt")
        self.wait_s = wait_s


class AuthMiddleware:
    """ASGI middleware that puts the caller into the state of the request, or rejects it."""

    def __init__(self, app: ASGIApp, rules: AuthRules, error_formats: Mapping[str, ErrorFormat]) -> None:
        self._app, self._rules, self._error_formats = app, rules, error_formats
        self._lockout = Lockout()
        self._gateway_headers = frozenset(filter(None, (rules.user_header, rules.project_header)))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on with its caller, or reject it."""
        if scope["type"] != "http" or scope["path"] in OPEN_PATHS:
            await self._app(scope, receive, send)
            return
        try:
            # In place: the access log reads from this scope what later parts put into it.
            scope.update(await self._authenticate(scope))
        except RecollectError as error:
            await send_error(scope, send, _describe_rejection(error), self._error_formats)
            return
        await self._app(scope, receive, send)

    async def _authenticate(self, scope: Scope) -> Scope:
        """Return the request with its caller and without our credentials."""
        rules, headers = self._rules, scope["headers"]
        credentials = read_credentials(headers, user_header=rules.user_header, project_header=rules.project_header)
        address = scope["client"][0] if scope.get("client") else ""
        trusts_forwarded = credentials.forwarded and is_within(address, rules.proxies)
        origin = credentials.forwarded if trusts_forwarded else address
        caller = await self._resolve_caller(credentials, address, origin, scope["app"].state.service_handle)
        self._check_names(caller, credentials)
        if caller.user is None and any(credentials.users):
            # Nobody vouches for the header, but a caller who may act for any user limits the request to this one.
            caller = replace(caller, user=next(filter(None, credentials.users)))
        # The names in the gateway's headers are the caller's by now, and none of the upstream's business.
        stripped = self._gateway_headers | ({b"authorization"} if caller.kind == "jwt" else frozenset())
        if credentials.key or any(name in stripped for name, _ in headers):
            headers = strip_own_keys(headers, also=stripped)
        key_removed = caller.kind in ("key", "jwt") and not any(name == b"authorization" for name, _ in headers)
        state = {**scope.get("state", {}), STATE_CALLER: caller, STATE_KEY_REMOVED: key_removed}
        return {**scope, "headers": headers, "state": state}

    def _check_names(self, caller: Caller, credentials: Credentials) -> None:
        """Reject users and projects in headers that are not the caller's; a gateway's own headers are trusted."""
        users, projects = credentials.named_users, credentials.named_projects
        if caller.kind != "gateway":
            users, projects = (*credentials.users, *users), (*credentials.projects, *projects)
        for user in users:
            caller.resolve_user(user)
        for project in projects:
            caller.resolve_project(project)
        for kind, names in (("users", users), ("projects", projects)):
            if len(set(filter(None, names))) > 1:
                raise NotAllowed(f"The headers name different {kind}")

    async def _resolve_caller(
        self, credentials: Credentials, address: str, origin: str, service_handle: ServiceHandle
    ) -> Caller:
        rules = self._rules
        if credentials.key:
            if not rules.keys:
                raise Unauthenticated("API keys are not accepted here")
            keys = service_handle.get().api_keys
            return await self._verify(credentials.key, origin, keys)
        if rules.tokens is not None and credentials.token:
            return await self._verify(credentials.token, origin, rules.tokens)
        if rules.gateways and is_within(address, rules.gateways):
            return _caller_from_gateway(credentials, rules)
        caller = LOCAL_CALLER if rules.anonymous is AnonymousAccess.ALWAYS else None
        if rules.anonymous is AnonymousAccess.WITHOUT_KEYS:
            caller = await _local_caller(service_handle)
        if caller is not None and credentials.proxy_header and not rules.allows_anonymous_proxy:
            raise NotAllowed(_PROXY_WITHOUT_AUTH.format(header=credentials.proxy_header))
        if caller is not None:
            return caller
        if rules.gateways and credentials.users:
            raise Unauthenticated("This address is not one of the trusted_gateways")
        raise Unauthenticated(_KEY_REQUIRED if rules.keys else "The request has no credentials")

    async def _verify(self, credential: str, address: str, verifier: ApiKeys | TokenVerifier) -> Caller:
        """Verify a key or a token; a peer with too many failures must wait, unless the credential is cached."""
        if (wait_s := self._lockout.wait_s(address)) and not verifier.is_cached(credential):
            raise TooManyFailures(wait_s)
        try:
            if isinstance(verifier, TokenVerifier):
                return await verifier.verify(credential)
            return _caller_from_key(await verifier.authenticate(credential))
        except Unauthenticated:
            self._lockout.record_failure(address)
            raise


async def _local_caller(service_handle: ServiceHandle) -> Caller | None:
    """Return the caller without credentials, or None if keys exist.

    While the ledger is unavailable nobody knows whether keys exist: chats are served and stored, and nothing is read.
    """
    try:
        return None if await service_handle.get().api_keys.is_used() else LOCAL_CALLER
    except Unavailable:
        return Caller(kind="local", name="local", reads=False, is_unknown=True)


def _caller_from_key(key: ApiKey) -> Caller:
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
    header = rules.user_header.decode()
    if not any(credentials.users):
        raise MissingUser(f"The gateway's header {header}, which names the user, is missing")
    # One of two would be the client's, and nobody knows which.
    if len(credentials.users) > 1 or len(credentials.projects) > 1:
        raise Unauthenticated(f"The gateway's header {header}, or that of the project, came more than once")
    try:
        scope = MemoryScope(credentials.users[0], credentials.projects[0] if credentials.projects else "")
    except InvalidInput as error:
        raise Unauthenticated(f"The gateway names no valid user: {error}") from None
    return Caller(kind="gateway", name="gateway", user=scope.user, project=scope.project or None)


def _describe_rejection(error: RecollectError) -> ErrorInfo:
    code, message = type(error).__name__, str(error)
    if isinstance(error, TooManyFailures):
        return ErrorInfo(429, code, message, retry_after_s=error.wait_s)
    status = status_of(error)
    headers = {"WWW-Authenticate": 'Bearer realm="recollect"'} if status == 401 else {}
    return ErrorInfo(status, code, message, retry_after_s=1.0 if error.retryable else None, headers=headers)


Header = tuple[bytes, bytes]
_PREFIX = KEY_PREFIX.encode()
_KEY_HEADERS = (b"x-api-key", b"api-key")
_SCHEMES = (b"bearer", b"token")


@dataclass(slots=True)
class Credentials:
    """A key, a token, and the user and project of a gateway."""

    key: str = ""
    token: str = ""
    users: tuple[str, ...] = ()
    projects: tuple[str, ...] = ()
    # The user and project that the client itself names.
    named_users: tuple[str, ...] = ()
    named_projects: tuple[str, ...] = ()
    # The client's address as reported by a proxy: the last one is the one that it saw itself.
    forwarded: str = ""
    # A header by which a reverse proxy shows, or an empty text.
    proxy_header: str = ""


def read_credentials(headers: Sequence[Header], *, user_header: bytes, project_header: bytes) -> Credentials:
    """Return the credentials; the first key counts."""
    credentials = Credentials()
    for name, value in headers:
        if name in _PROXY_HEADERS:
            credentials.proxy_header = name.decode()
        if name == b"authorization":
            if key := _extract_key(value):
                credentials.key = credentials.key or key
            elif not credentials.token:
                scheme, _, rest = value.partition(b" ")
                credentials.token = rest.strip().decode("latin-1") if scheme.lower() == b"bearer" else ""
        elif name in _KEY_HEADERS:
            credentials.key = credentials.key or _extract_key(value)
        elif name == user_header:
            credentials.users += (decode_header(value),)
        elif name == b"x-memory-user":
            credentials.named_users += (decode_header(value),)
        elif name == b"x-memory-project":
            credentials.named_projects += (decode_header(value),)
        elif name == b"x-forwarded-for":
            credentials.forwarded = value.rpartition(b",")[2].strip().decode("latin-1")
        elif project_header and name == project_header:
            credentials.projects += (decode_header(value),)
    return credentials


def strip_own_keys(headers: Sequence[Header], *, also: frozenset[bytes] = frozenset()) -> list[Header]:
    """Return the headers without our keys and without the headers in `also`."""
    return [
        (name, value)
        for name, value in headers
        if name not in also and not ((name == b"authorization" or name in _KEY_HEADERS) and _extract_key(value))
    ]


def _extract_key(value: bytes) -> str:
    """Return our key in a header, or an empty text."""
    text = value.strip()
    if not text.startswith(_PREFIX):
        scheme, _, text = text.partition(b" ")
        text = text.strip()
        if scheme.lower() not in _SCHEMES or not text.startswith(_PREFIX):
            return ""
    return text.decode("latin-1")
