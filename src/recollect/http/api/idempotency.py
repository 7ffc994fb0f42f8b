"""Requests that can be sent again: with an Idempotency-Key they are done once and answered alike, by any process."""

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
from recollect.http.api.routing import ServiceDep, get_named_user
from recollect.http.auth.caller import Caller, CallerDep
from recollect.ledger.protocol import IdempotencyStore, KeyClaim
from recollect.model.change import IdempotencyToken
from recollect.model.times import now

IdempotencyKey = Annotated[
    str | None,
    Header(
        min_length=1,
        max_length=300,
        pattern=r"^[!-~]([ -~]*[!-~])?$",
        description="Sent again with the same key, a request is done once and answered alike.",
        examples=["8f14e45f"],
    ),
]
# What a request says in headers, besides whose memories it is about.
_HASHED_HEADERS = ("x-memory-project", "x-memory-session", "x-memory-by", "x-memory-actor", "if-match")
_HEADER_NAME = "idempotency-key"
# Whoever held a key for longer without an answer has ended: what can be done again is.
_LOST_S = 60.0
# How long to wait for another who does the same right now, and how often to look.
_WAIT_S = 30.0
_POLL_S = 0.05

_Endpoint = TypeVar("_Endpoint", bound=Callable[..., Awaitable[JSONResponse]])


class IdempotentRequest:
    """A request and its key, if it has one."""

    def __init__(self, replies: IdempotencyStore, user: str, once: IdempotencyToken | None) -> None:
        self._replies, self._user, self.once = replies, user, once

    async def answer(self, do: Callable[[], Awaitable[JSONResponse]], *, redo: bool, erases: bool) -> JSONResponse:
        """What doing it came to, now or when it was done before."""
        once = self.once
        if once is None:
            return await do()
        claim = await self._claim_key(once, redo=redo)
        if claim.answer is not None:
            return _replay_response(claim.answer)
        done = None
        try:
            done = await do()
            reply = {
                "status": done.status_code,
                "body": json.loads(bytes(done.body)),
                "etag": done.headers.get("etag"),
            }
            # The receipt of an erasure outlives it: it holds nothing of what went.
            await self._replies.store_answer(self._user, once, reply, since=None if erases else claim.epoch)
        except BaseException as error:
            # It came to nothing, or can be done again: the next one may try.
            if redo or (done is None and isinstance(error, Exception)):
                await asyncio.shield(self._replies.release_key(self._user, once))
            raise
        return done

    async def _claim_key(self, once: IdempotencyToken, *, redo: bool) -> KeyClaim:
        clock = asyncio.get_running_loop().time
        ends_at = clock() + _WAIT_S
        while True:
            lost_before = now() - timedelta(seconds=_LOST_S) if redo else None
            claim = await self._replies.claim_key(self._user, once, stale_before=lost_before)
            if claim.is_owner or claim.answer is not None:
                return claim
            if clock() >= ends_at:
                raise Conflict(
                    f"the request with the key {once.key!r} was begun and has no answer yet: wait for it, or look "
                    f"whether it was done and take a new key"
                )
            await asyncio.sleep(_POLL_S)


async def _idempotent_request(
    request: Request,
    caller: CallerDep,
    service: ServiceDep,
    user: Annotated[str, Depends(get_named_user)],
    idempotency_key: IdempotencyKey = None,
) -> IdempotentRequest:
    once = None if idempotency_key is None else IdempotencyToken(idempotency_key, await _digest(request, caller))
    return IdempotentRequest(service.replies, user, once)


async def _digest(request: Request, caller: Caller) -> str:
    """What stands for all that is asked for, and for what whoever asks may see of it."""
    headers = [request.headers.get(name) for name in _HASHED_HEADERS]
    query = sorted(request.query_params.multi_items())
    parts = [request.method, request.url.path, query, headers, caller.project, caller.reads]
    digest = hashlib.blake2b(json.dumps(parts).encode(), digest_size=16)
    digest.update(await request.body())
    return digest.hexdigest()


IdempotencyDep = Annotated[IdempotentRequest, Depends(_idempotent_request)]


def idempotent(
    *, redo: bool = True, erases: bool = False, ignores_key: Callable[[Mapping[str, Any]], bool] = lambda given: False
) -> Callable[[_Endpoint], _Endpoint]:
    """Have an endpoint take an Idempotency-Key; `redo` says that doing it twice is doing it once.

    What cannot be done again without a second effect stays undone if whoever began it has ended. What is `keyless`
    is done each time, and nothing is kept of its key.
    """

    def decorate(endpoint: _Endpoint) -> _Endpoint:
        @wraps(endpoint)
        async def answer(*, repeats: IdempotentRequest, **arguments: Any) -> JSONResponse:
            if ignores_key(arguments):
                return await endpoint(**arguments)
            return await repeats.answer(lambda: endpoint(**arguments), redo=redo, erases=erases)

        signature = inspect.signature(endpoint)
        own = inspect.Parameter("repeats", inspect.Parameter.KEYWORD_ONLY, annotation=IdempotencyDep)
        answer.__signature__ = signature.replace(  # type: ignore[attr-defined]
            parameters=[*signature.parameters.values(), own]
        )
        return answer  # type: ignore[return-value]

    return decorate


def _replay_response(reply: Mapping[str, Any]) -> JSONResponse:
    headers = {"ETag": reply["etag"]} if reply["etag"] else None
    return JSONResponse(reply["body"], reply["status"], headers=headers)


def with_turn_ids(key: str | None, messages: str | Sequence[Mapping[str, Any]]) -> str | Sequence[Mapping[str, Any]]:
    """The messages with ids of the turns they become, kept once even if a server ended in between."""
    if key is None:
        return messages
    listed = [{"role": "user", "content": messages}] if isinstance(messages, str) else messages
    return [{"turn_id": _turn_id(key, n, each), **each} for n, each in enumerate(listed)]


def _turn_id(key: str, n: int, message: Mapping[str, Any]) -> str:
    text = json.dumps([key, n, message], sort_keys=True, default=str)
    return str(UUID(bytes=hashlib.blake2b(text.encode(), digest_size=16, person=b"recollect-turns").digest()))


def reject_idempotency_key(why: str) -> Any:
    """Refuses a key where it would mean nothing."""

    async def refuse(request: Request) -> None:
        if _HEADER_NAME in request.headers:
            raise InvalidInput(f"Idempotency-Key means nothing here: {why}; leave it out")

    return Depends(refuse)
