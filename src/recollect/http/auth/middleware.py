"""Finds out who is asking before any door is reached, and takes what only concerns us out of the headers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from starlette.types import ASGIApp, Receive, Scope, Send

from recollect.errors import InvalidInput, MissingUser, NotAllowed, RecollectError, Unauthenticated, Unavailable
from recollect.http.auth.address import is_within
from recollect.http.auth.caller import CALLER, LOCAL, WITHHELD, Caller
from recollect.http.auth.failures import Failures
from recollect.http.auth.rules import Open, Rules
from recollect.http.auth.shapes import SHAPES, Shape, shape_of
from recollect.http.auth.shown import Shown, read_shown, without_ours
from recollect.http.errors import status_of
from recollect.http.late_service import LateService
from recollect.http.proxy.client import answer_json
from recollect.keyring import Keyring
from recollect.model.key import ApiKey
from recollect.model.scope import Scope as Whose

# They tell nothing about anyone.
OPEN_PATHS = frozenset({
    "/live", "/health", "/ready", "/version", "/openapi.json",
    "/docs", "/docs/start.js", "/docs/swagger-ui-bundle.js", "/docs/swagger-ui.css",
})  # fmt: skip
_AUTHORIZATION = frozenset({b"authorization"})
_SHOW_A_KEY = "show a key: Authorization: Bearer rk_..., or X-API-Key; `recollect keys add` makes one"


class TooManyFailures(RecollectError):
    """This peer showed wrong keys again and again."""

    def __init__(self, wait_s: float) -> None:
        super().__init__("too many wrong keys came from this address: wait, then try again")
        self.wait_s = wait_s


class Authentication:
    """The first thing that a request meets, as bare ASGI middleware."""

    def __init__(self, app: ASGIApp, rules: Rules, shapes: Mapping[str, Shape] = SHAPES) -> None:
        self._app = app
        self._rules = rules
        self._shapes = shapes
        self._failures = Failures()
        self._gateway_headers = frozenset(filter(None, (rules.user_header, rules.project_header)))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket") or scope["path"] in OPEN_PATHS:
            await self._app(scope, receive, send)
            return
        try:
            # In place: whoever stands before sees what becomes of the request by what is put into it.
            scope.update(await self._admitted(scope))
        except RecollectError as error:
            await _refuse(scope, send, error, shape_of(scope["path"], self._shapes))
            return
        await self._app(scope, receive, send)

    async def _admitted(self, scope: Scope) -> Scope:
        """The same request with its caller, without what was shown to us."""
        rules, headers = self._rules, scope["headers"]
        shown = read_shown(headers, user_header=rules.user_header, project_header=rules.project_header)
        address = scope["client"][0] if scope.get("client") else ""
        late: LateService = scope["app"].state.late
        believed = shown.forwarded and is_within(address, rules.proxies)
        caller = await self._caller(shown, address, shown.forwarded if believed else address, late)
        # From anyone but a gateway all of these are words of the client, and no other user's name may be among them.
        is_gateway = caller.kind == "gateway"
        users = shown.named_users if is_gateway else (*shown.users, *shown.named_users)
        for user in users:
            caller.bound_user(user)
        projects = shown.named_projects if is_gateway else (*shown.projects, *shown.named_projects)
        for project in projects:
            caller.bound_project(project)
        for what, names in (("users", users), ("projects", projects)):
            if len(set(filter(None, names))) > 1:
                raise NotAllowed(f"the headers name two {what}; a request is about one")
        if caller.user is None and any(shown.users):
            # Nobody has made sure of it, but whoever may speak for any says so for whom this is.
            caller = replace(caller, user=next(filter(None, shown.users)))
        taken = {"gateway": self._gateway_headers, "jwt": _AUTHORIZATION}.get(caller.kind, frozenset())
        if taken or shown.key:
            headers = without_ours(headers, also=taken)
        withheld = caller.kind in ("key", "jwt") and not any(name == b"authorization" for name, _ in headers)
        state = {**scope.get("state", {}), CALLER: caller, WITHHELD: withheld}
        return {**scope, "headers": headers, "state": state}

    async def _caller(self, shown: Shown, address: str, origin: str, late: LateService) -> Caller:
        rules = self._rules
        if shown.key:
            return await self._by_key(shown.key, origin, late.get().keyring)
        if rules.tokens is not None and shown.token:
            return await self._by_token(shown.token, origin)
        if rules.gateways and is_within(address, rules.gateways):
            return _by_gateway(shown, rules)
        if rules.open is Open.ALWAYS:
            return LOCAL
        if rules.open is Open.WITHOUT_KEYS and (caller := await _on_this_machine(late)) is not None:
            return caller
        if rules.gateways and shown.users:
            raise Unauthenticated("this address is none of the gateways whose headers are believed")
        raise Unauthenticated(_SHOW_A_KEY if rules.keys else "show who is asking: there is no credential here")

    async def _by_key(self, text: str, address: str, keyring: Keyring) -> Caller:
        if not self._rules.keys:
            raise Unauthenticated("keys are not accepted here")
        if (wait_s := self._failures.wait_s(address)) and not keyring.is_known(text):
            raise TooManyFailures(wait_s)
        try:
            return _of_key(await keyring.find(text))
        except Unauthenticated:
            self._failures.note(address)
            raise

    async def _by_token(self, token: str, address: str) -> Caller:
        tokens = self._rules.tokens
        assert tokens is not None
        if (wait_s := self._failures.wait_s(address)) and not tokens.is_known(token):
            raise TooManyFailures(wait_s)
        try:
            return await tokens.find(token)
        except Unauthenticated:
            self._failures.note(address)
            raise


async def _on_this_machine(late: LateService) -> Caller | None:
    """Who asks without a key from here; None once there are keys.

    While the ledger is away nobody can tell whether there are: chats go on and are kept, and nothing is told.
    """
    try:
        return None if await late.get().keyring.is_used() else LOCAL
    except Unavailable:
        return Caller(kind="local", name="local", reads=False, is_unknown=True)


def _of_key(key: ApiKey) -> Caller:
    return Caller(
        kind="key",
        name=f"key:{key.name}",
        user=key.user,
        project=key.project,
        admin=key.admin,
        reads=key.reads,
        writes=key.writes,
    )


def _by_gateway(shown: Shown, rules: Rules) -> Caller:
    # Two of them are the client's beside the gateway's, and nobody can tell which is which.
    header = rules.user_header.decode()
    if not any(shown.users):
        raise MissingUser(f"the header {header} of the gateway is missing, which names the user")
    if len(shown.users) > 1 or len(shown.projects) > 1:
        raise Unauthenticated(f"the header {header} of the gateway, or that of the project, came more than once")
    try:
        whose = Whose(shown.users[0], shown.projects[0] if shown.projects else "")
    except InvalidInput as error:
        raise Unauthenticated(f"the gateway names no user: {error}") from None
    return Caller(kind="gateway", name="gateway", user=whose.user, project=whose.project or None)


async def _refuse(scope: Scope, send: Send, error: RecollectError, shape: Shape) -> None:
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
    body = shape(status, type(error).__name__, str(error))
    await answer_json(send, status, body, headers)
