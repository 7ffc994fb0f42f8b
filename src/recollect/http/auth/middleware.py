"""Authentication: finds out who sends a request, and hides the credentials from everything after it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send

from recollect.config.settings import Settings
from recollect.errors import (
    InvalidInput,
    MissingUser,
    NotAllowed,
    RecollectError,
    TooFast,
    Unauthenticated,
    Unavailable,
)
from recollect.http.auth.address import Network, client_network, is_within
from recollect.http.auth.caller import LOCAL_CALLER, STATE_CALLER, STATE_KEY_REMOVED, Caller
from recollect.http.auth.rules import AnonymousAccess, AuthRules
from recollect.http.auth.tokens import TokenVerifier
from recollect.http.errors import ErrorFormat, error_info, send_error, status_of
from recollect.http.page import PAGE_PREFIX
from recollect.http.params import decode_header
from recollect.http.routing import API_PREFIX
from recollect.model.key import KEY_PREFIX, ApiKey
from recollect.model.scope import Scope as MemoryScope
from recollect.service.api_keys import ApiKeys
from recollect.service.handle import ServiceHandle

MCP_PATH = "/mcp"
METADATA_PATH = "/.well-known/oauth-protected-resource"
MAX_FAILURES = 10
WINDOW_S = 60.0
MAX_PEERS = 10_000
# Paths that reveal nothing about anyone.
OPEN_PATHS = frozenset({
    "/live", "/health", "/ready", "/version", "/openapi.json",
    "/docs", "/docs/start.js", "/docs/swagger-ui-bundle.js", "/docs/swagger-ui.css",
    "/", f"{API_PREFIX}/login", f"{API_PREFIX}/logout",
})  # fmt: skip
_OPEN_PREFIXES = (PAGE_PREFIX, METADATA_PATH)
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
        peer, moment = client_network(address), self._clock()
        window = self._windows.get(peer)
        if window is None or moment - window.started >= WINDOW_S:
            # Inserted at the end, so that the oldest are dropped first.
            self._windows.pop(peer, None)
            if len(self._windows) >= MAX_PEERS:
                del self._windows[next(iter(self._windows))]
            window = self._windows[peer] = _FailureWindow(moment)
        window.failures += 1


class TooManyFailures(TooFast):
    """A peer sent too many wrong credentials."""

    def __init__(self, wait_s: float) -> None:
        message = "Too many wrong credentials from this address; wait before the next attempt"
        super().__init__(message, retry_after_s=wait_s)


class AuthMiddleware:
    """ASGI middleware that puts the caller into the state of the request, or rejects it."""

    def __init__(self, app: ASGIApp, authenticator: Authenticator, error_formats: Mapping[str, ErrorFormat]) -> None:
        self._app, self._authenticator, self._error_formats = app, authenticator, error_formats

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in OPEN_PATHS or scope["path"].startswith(_OPEN_PREFIXES):
            await self._app(scope, receive, send)
            return
        try:
            # In place: the access log reads from this scope what later parts put into it.
            scope.update(await self._authenticator.authenticate(scope))
        except RecollectError as error:
            # Without the wrong cookie the page can log in; it would also count as a failure each time.
            has_cookie = any(name == b"cookie" and read_cookie(value) for name, value in scope["headers"])
            is_wrong = has_cookie and isinstance(error, Unauthenticated)
            headers = {"Set-Cookie": self._authenticator.cookie("", scope)} if is_wrong else {}
            if status_of(error) == 401:
                headers["WWW-Authenticate"] = challenge(scope, self._authenticator.rules)
            await send_error(scope, send, error_info(error, headers=headers), self._error_formats)
            return
        await self._app(scope, receive, send)


class Authenticator:
    """Finds the caller of a request by the rules of the settings."""

    def __init__(self, rules: AuthRules) -> None:
        self.rules = self._rules = rules
        self._lockout = Lockout()
        self._gateway_headers = frozenset(filter(None, (rules.user_header, rules.project_header)))

    async def log_in(self, scope: Scope, key: str) -> Caller:
        """Return the caller of a key; Unauthenticated if it is wrong, which counts for the lockout."""
        if not self._rules.keys:
            raise Unauthenticated("API keys are not accepted here")
        keys = scope["app"].state.service_handle.get().api_keys
        return await self._verify(key, self._origin(scope, self._read_credentials(scope)), keys)

    def cookie(self, key: str, scope: Scope) -> str:
        return cookie_header(key, scope, base_path=self._rules.base_path, proxies=self._rules.proxies)

    def _read_credentials(self, scope: Scope) -> Credentials:
        rules = self._rules
        return read_credentials(scope["headers"], user_header=rules.user_header, project_header=rules.project_header)

    def _origin(self, scope: Scope, credentials: Credentials) -> str:
        """Return the address that failures are counted by: as a trusted proxy reports it, or else the peer's."""
        address = scope["client"][0] if scope.get("client") else ""
        return credentials.forwarded if credentials.forwarded and is_within(address, self._rules.proxies) else address

    async def authenticate(self, scope: Scope) -> Scope:
        """Return the request with its caller and without our credentials."""
        headers = scope["headers"]
        credentials = self._read_credentials(scope)
        has_cookie = bool(credentials.cookie)
        has_other = bool(credentials.key or (self._rules.tokens is not None and credentials.token))
        by_cookie = has_cookie and not has_other and self._rules.keys and accepts_cookie(scope["path"])
        if by_cookie:
            check_own_page(scope)
            credentials.key = credentials.cookie
        address = scope["client"][0] if scope.get("client") else ""
        origin = self._origin(scope, credentials)
        caller = await self._resolve_caller(credentials, address, origin, scope["app"].state.service_handle)
        if by_cookie:
            caller = replace(caller, by_cookie=True, is_audited=caller.user is None)
        self._check_names(caller, credentials)
        if caller.user is None and any(credentials.users):
            # Nobody vouches for the header, but a caller who may act for any user limits the request to this one.
            caller = replace(caller, user=next(filter(None, credentials.users)))
        # The names in the gateway's headers are the caller's by now, and none of the upstream's business.
        stripped = self._gateway_headers | ({b"authorization"} if caller.kind == "jwt" else frozenset())
        if credentials.key or has_cookie or any(name in stripped for name, _ in headers):
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
        person=key.person,
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


Header = tuple[bytes, bytes]
_PREFIX = KEY_PREFIX.encode()
_KEY_HEADERS = (b"x-api-key", b"api-key")
_SCHEMES = (b"bearer", b"token")


@dataclass(slots=True)
class Credentials:
    """A key, a token, and the user and project of a gateway."""

    key: str = ""
    token: str = ""
    # The key in the page's cookie.
    cookie: str = ""
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
        elif name == b"cookie":
            credentials.cookie = credentials.cookie or read_cookie(value)
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
    """Return the headers without our keys, our cookie and the headers in `also`."""
    stripped = []
    for name, value in headers:
        if name in also or name == PAGE_HEADER:
            continue
        if (name == b"authorization" or name in _KEY_HEADERS) and _extract_key(value):
            continue
        if name == b"cookie" and not (value := without_cookie(value)):
            continue
        stripped.append((name, value))
    return stripped


def _extract_key(value: bytes) -> str:
    """Return our key in a header, or an empty text."""
    text = value.strip()
    if not text.startswith(_PREFIX):
        scheme, _, text = text.partition(b" ")
        text = text.strip()
        if scheme.lower() not in _SCHEMES or not text.startswith(_PREFIX):
            return ""
    return text.decode("latin-1")


COOKIE_NAME = "recollect_key"
PAGE_HEADER = b"x-recollect-page"
_NAME = COOKIE_NAME.encode()
_MAX_AGE_S = 30 * 86_400
_SAFE_METHODS = ("GET", "HEAD")
# Besides the REST API: what the page needs to chat.
_CHAT_PATHS = frozenset(["/v1/chat/completions", "/v1/models"])


def accepts_cookie(path: str) -> bool:
    return path.startswith(f"{API_PREFIX}/") or path in _CHAT_PATHS


def read_cookie(header: bytes) -> str:
    """Return the key in a Cookie header, or an empty text."""
    for part in header.split(b";"):
        name, _, value = part.strip().partition(b"=")
        if name == _NAME:
            return value.strip().strip(b'"').decode("latin-1")
    return ""


def without_cookie(header: bytes) -> bytes:
    parts = [part.strip() for part in header.split(b";")]
    return b"; ".join(part for part in parts if part and part.partition(b"=")[0].strip() != _NAME)


def check_own_page(scope: Scope) -> None:
    """Raise NotAllowed unless a request with the cookie was sent by our own page or typed by the user.

    Another site cannot send the page's header: its browser would first ask this server, which does not allow it.
    `HostGuardMiddleware` has compared Origin with the host.
    """
    headers = dict(scope["headers"])
    if headers.get(b"sec-fetch-site", b"none") not in (b"same-origin", b"none"):
        raise NotAllowed("Pages of other sites may not use the cookie of this one")
    if scope["method"] not in _SAFE_METHODS and headers.get(PAGE_HEADER) != b"1":
        raise NotAllowed("A change that is authenticated by cookie needs the header X-Recollect-Page: 1")


def cookie_header(key: str, scope: Scope, *, base_path: str, proxies: Sequence[Network]) -> str:
    """Return the Set-Cookie header that stores a key, or deletes it if it is empty."""
    forwarded = forwarded_headers(scope, proxies)
    path = forwarded.get(b"x-forwarded-prefix", b"").decode("latin-1").rstrip("/") or base_path
    if not path.startswith("/") or any(character in path for character in ";,\\ \r\n"):
        path = ""
    age_s = _MAX_AGE_S if key else 0
    attributes = [f"{COOKIE_NAME}={key}", f"Path={path or '/'}", f"Max-Age={age_s}", "HttpOnly", "SameSite=Strict"]
    return "; ".join([*attributes, "Secure"] if is_https(scope, forwarded) else attributes)


def is_https(scope: Scope, forwarded: Mapping[bytes, bytes]) -> bool:
    """Return whether the client's connection is encrypted, to this server or to the proxy."""
    return scope["scheme"] == "https" or forwarded.get(b"x-forwarded-proto", b"").lower() == b"https"


def forwarded_headers(scope: Scope, proxies: Sequence[Network]) -> Mapping[bytes, bytes]:
    """Return the headers, if a trusted proxy has sent them."""
    address = scope["client"][0] if scope.get("client") else ""
    return dict(scope["headers"]) if is_within(address, tuple(proxies)) else {}


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
