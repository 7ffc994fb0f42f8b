"""Idempotency keys: a request that is repeated with its key runs once and has one answer, in any process."""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from functools import wraps
from typing import Annotated, Any, TypeVar
from uuid import UUID

from fastapi import Depends, Header, Request
from fastapi.responses import JSONResponse

from recollect.errors import Conflict, InvalidInput
from recollect.http.auth.caller import Caller, CallerDep
from recollect.http.large_json import SafeJSONResponse
from recollect.http.params import IDEMPOTENCY_KEY_PATTERN
from recollect.http.routing import ServiceDep, get_named_user
from recollect.model.change import IdempotencyToken
from recollect.model.times import now
from recollect.service.service import Service

IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=300,
        pattern=IDEMPOTENCY_KEY_PATTERN,
        description="A request that is repeated with the same key runs once and has one answer.",
    ),
]
# Headers that are part of a request's meaning.
_HASHED_HEADERS = ("x-memory-project", "x-memory-session", "x-memory-by", "x-memory-actor", "if-match")
# A process that owns a key for longer than this without an answer has died.
LOST_S = 60.0
# How long to wait for another process that runs the same request, and how often to check.
WAIT_S = 30.0
_POLL_S = 0.05

_Endpoint = TypeVar("_Endpoint", bound=Callable[..., Awaitable[JSONResponse]])


class IdempotentRequest:
    """A request and its key, if it has one."""

    def __init__(self, service: Service, user: str, token: IdempotencyToken | None) -> None:
        self._answers, self._user, self._token = service.replies, user, token

    async def answer(self, run: Callable[[], Awaitable[JSONResponse]], *, redo: bool, erases: bool) -> JSONResponse:
        token = self._token
        if token is None:
            return await run()
        clock = asyncio.get_running_loop().time
        ends_at = clock() + WAIT_S
        while True:
            lost_before = now() - timedelta(seconds=LOST_S) if redo else None
            claim = await self._answers.claim_key(self._user, token, stale_before=lost_before)
            if claim.answer is not None:
                etag = claim.answer["etag"]
                return SafeJSONResponse(
                    claim.answer["body"], claim.answer["status"], {"ETag": etag} if etag else None
                )
            if claim.is_owner:
                return await self._run(run, token, redo=redo, epoch=None if erases else claim.epoch)
            if clock() >= ends_at:
                raise Conflict(
                    f"The request with Idempotency-Key {token.key!r} has started and not finished: wait for it, or "
                    "check its effect and use a new key"
                )
            await asyncio.sleep(_POLL_S)

    async def _run(
        self, run: Callable[[], Awaitable[JSONResponse]], token: IdempotencyToken, *, redo: bool, epoch: int | None
    ) -> JSONResponse:
        """Run the request and store its answer; that of an erasure, which quotes nothing, outlives the erasure."""
        response = None
        try:
            response = await run()
            answer = {
                "status": response.status_code,
                "body": json.loads(bytes(response.body)),
                "etag": response.headers.get("etag"),
            }
            await self._answers.store_answer(self._user, token, answer, since=epoch)
        except BaseException as error:
            # It had no effect, or may run twice: the next request may run it.
            if redo or (response is None and isinstance(error, Exception)):
                await asyncio.shield(self._answers.release_key(self._user, token))
            raise
        return response


async def _idempotent_request(
    request: Request,
    caller: CallerDep,
    service: ServiceDep,
    user: Annotated[str, Depends(get_named_user)],
    idempotency_key: IdempotencyKey = None,
) -> IdempotentRequest:
    token = None if idempotency_key is None else IdempotencyToken(idempotency_key, await _digest(request, caller))
    return IdempotentRequest(service, user, token)


async def _digest(request: Request, caller: Caller) -> str:
    """Return a digest of the request and of what the caller may see of the answer."""
    headers = [request.headers.get(name) for name in _HASHED_HEADERS]
    query = sorted(request.query_params.multi_items())
    parts = [request.method, request.url.path, query, headers, caller.project, caller.reads]
    digest = hashlib.blake2b(json.dumps(parts).encode(), digest_size=16)
    digest.update(await request.body())
    return digest.hexdigest()


IdempotencyDep = Annotated[IdempotentRequest, Depends(_idempotent_request)]


def idempotent(
    *, redo: bool = True, erases: bool = False, ignores_key: Callable[[Mapping[str, Any]], bool] | None = None
) -> Callable[[_Endpoint], _Endpoint]:
    """Let an endpoint accept an Idempotency-Key.

    `redo` says that running the request twice has the effect of once; other requests are not repeated if the process
    that began them has died. A request that `ignores_key` runs each time, and its key is not stored.
    """

    def decorate(endpoint: _Endpoint) -> _Endpoint:
        @wraps(endpoint)
        async def answer(*, idempotency: IdempotentRequest, **arguments: Any) -> JSONResponse:
            if ignores_key is not None and ignores_key(arguments):
                return await endpoint(**arguments)
            return await idempotency.answer(lambda: endpoint(**arguments), redo=redo, erases=erases)

        signature = inspect.signature(endpoint)
        own = inspect.Parameter("idempotency", inspect.Parameter.KEYWORD_ONLY, annotation=IdempotencyDep)
        answer.__signature__ = signature.replace(  # type: ignore[attr-defined]
            parameters=[*signature.parameters.values(), own]
        )
        return answer  # type: ignore[return-value]

    return decorate


def with_turn_ids(key: str | None, messages: str | Sequence[Mapping[str, Any]]) -> str | Sequence[Mapping[str, Any]]:
    """Give messages turn ids that depend on the key, so that they are stored once even if a server dies midway."""
    if key is None:
        return messages
    listed = [{"role": "user", "content": messages}] if isinstance(messages, str) else messages
    return [{"turn_id": _turn_id(key, number, each), **each} for number, each in enumerate(listed)]


def _turn_id(key: str, number: int, message: Mapping[str, Any]) -> str:
    text = json.dumps([key, number, message], sort_keys=True, default=str)
    return str(UUID(bytes=hashlib.blake2b(text.encode(), digest_size=16, person=b"recollect-turns").digest()))


def reject_idempotency_key(reason: str) -> Any:
    """Return a dependency that rejects a key where it has no meaning."""

    async def reject(request: Request) -> None:
        if "idempotency-key" in request.headers:
            raise InvalidInput(f"Idempotency-Key is not supported here, because {reason}; leave it out")

    return Depends(reject)
