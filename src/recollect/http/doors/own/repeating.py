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
from recollect.http.auth.caller import Asking, Caller
from recollect.http.doors.own.asking import named_user
from recollect.http.doors.own.routing import Serving
from recollect.ledger.replies import Held, Replies
from recollect.model.change import Once
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
_SAID = ("x-memory-project", "x-memory-session", "x-memory-by", "x-memory-actor", "if-match")
_NAME = "idempotency-key"
# Whoever held a key for longer without an answer has ended: what can be done again is.
_LOST_S = 60.0
# How long to wait for another who does the same right now, and how often to look.
_WAIT_S = 30.0
_LOOK_S = 0.05

_Endpoint = TypeVar("_Endpoint", bound=Callable[..., Awaitable[JSONResponse]])


class Repeating:
    """A request and its key, if it has one."""

    def __init__(self, replies: Replies, user: str, once: Once | None) -> None:
        self._replies, self._user, self.once = replies, user, once

    async def answer(self, do: Callable[[], Awaitable[JSONResponse]], *, redo: bool, erases: bool) -> JSONResponse:
        """What doing it came to, now or when it was done before."""
        once = self.once
        if once is None:
            return await do()
        held = await self._held(once, redo=redo)
        if held.answer is not None:
            return _again(held.answer)
        done = None
        try:
            done = await do()
            told = {
                "status": done.status_code,
                "body": json.loads(bytes(done.body)),
                "etag": done.headers.get("etag"),
            }
            # The receipt of an erasure outlives it: it holds nothing of what went.
            await self._replies.keep_answer(self._user, once, told, since=None if erases else held.epoch)
        except BaseException as error:
            # It came to nothing, or can be done again: the next one may try.
            if redo or (done is None and isinstance(error, Exception)):
                await asyncio.shield(self._replies.let_go_key(self._user, once))
            raise
        return done

    async def _held(self, once: Once, *, redo: bool) -> Held:
        clock = asyncio.get_running_loop().time
        ends_at = clock() + _WAIT_S
        while True:
            lost_before = now() - timedelta(seconds=_LOST_S) if redo else None
            held = await self._replies.hold_key(self._user, once, lost_before=lost_before)
            if held.is_mine or held.answer is not None:
                return held
            if clock() >= ends_at:
                raise Conflict(
                    f"the request with the key {once.key!r} was begun and has no answer yet: wait for it, or look "
                    f"whether it was done and take a new key"
                )
            await asyncio.sleep(_LOOK_S)


async def _repeating(
    request: Request,
    caller: Asking,
    service: Serving,
    user: Annotated[str, Depends(named_user)],
    idempotency_key: IdempotencyKey = None,
) -> Repeating:
    once = None if idempotency_key is None else Once(idempotency_key, await _digest(request, caller))
    return Repeating(service.replies, user, once)


async def _digest(request: Request, caller: Caller) -> str:
    """What stands for all that is asked for, and for what whoever asks may see of it."""
    said = [request.headers.get(name) for name in _SAID]
    query = sorted(request.query_params.multi_items())
    asked = [request.method, request.url.path, query, said, caller.project, caller.reads]
    digest = hashlib.blake2b(json.dumps(asked).encode(), digest_size=16)
    digest.update(await request.body())
    return digest.hexdigest()


Repeats = Annotated[Repeating, Depends(_repeating)]


def repeatable(
    *, redo: bool = True, erases: bool = False, keyless: Callable[[Mapping[str, Any]], bool] = lambda given: False
) -> Callable[[_Endpoint], _Endpoint]:
    """Have an endpoint take an Idempotency-Key; `redo` says that doing it twice is doing it once.

    What cannot be done again without a second effect stays undone if whoever began it has ended. What is `keyless`
    is done each time, and nothing is kept of its key.
    """

    def taking(endpoint: _Endpoint) -> _Endpoint:
        @wraps(endpoint)
        async def answer(*, repeats: Repeating, **given: Any) -> JSONResponse:
            if keyless(given):
                return await endpoint(**given)
            return await repeats.answer(lambda: endpoint(**given), redo=redo, erases=erases)

        signature = inspect.signature(endpoint)
        own = inspect.Parameter("repeats", inspect.Parameter.KEYWORD_ONLY, annotation=Repeats)
        answer.__signature__ = signature.replace(  # type: ignore[attr-defined]
            parameters=[*signature.parameters.values(), own]
        )
        return answer  # type: ignore[return-value]

    return taking


def _again(told: Mapping[str, Any]) -> JSONResponse:
    headers = {"ETag": told["etag"]} if told["etag"] else None
    return JSONResponse(told["body"], told["status"], headers=headers)


def named_turns(key: str | None, messages: str | Sequence[Mapping[str, Any]]) -> str | Sequence[Mapping[str, Any]]:
    """The messages with ids of the turns they become, kept once even if a server ended in between."""
    if key is None:
        return messages
    given = [{"role": "user", "content": messages}] if isinstance(messages, str) else messages
    return [{"turn_id": _turn_id(key, n, each), **each} for n, each in enumerate(given)]


def _turn_id(key: str, n: int, message: Mapping[str, Any]) -> str:
    text = json.dumps([key, n, message], sort_keys=True, default=str)
    return str(UUID(bytes=hashlib.blake2b(text.encode(), digest_size=16, person=b"recollect-turns").digest()))


def keyless(why: str) -> Any:
    """Refuses a key where it would mean nothing."""

    async def refuse(request: Request) -> None:
        if _NAME in request.headers:
            raise InvalidInput(f"Idempotency-Key means nothing here: {why}; leave it out")

    return Depends(refuse)
