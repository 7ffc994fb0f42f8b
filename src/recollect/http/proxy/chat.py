"""POST /v1/chat/completions: recall, send on, relay, remember.

The upstream gets the body as it came but for one message; the client gets the answer as it came, byte for byte.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from starlette.types import Receive, Scope, Send

from recollect.errors import InvalidInput, MissingUser, NotAllowed, UpstreamBroken, UpstreamUnavailable
from recollect.http.auth.caller import CALLER
from recollect.http.auth.withheld import KEY_MISSING, lacks_key
from recollect.http.proxy.body import Body, read_body
from recollect.http.proxy.client import Gone, TooLarge, Watch, answer_error, answer_too_large, head, part, read_whole
from recollect.http.proxy.headers import by_name, readable, to_client, to_upstream
from recollect.http.proxy.hits import with_hits
from recollect.http.proxy.listener import Listener
from recollect.http.proxy.memory import ChatMemory, Exchange
from recollect.http.proxy.steering import FIELDS, Defaults, InvalidField, Steering, steer
from recollect.http.upstream.protocol import Ask, Reply
from recollect.http.upstream.upstreams import Upstreams
from recollect.model.turns import Turns

_log = logging.getLogger("recollect")
_PATH = "/chat/completions"
# How many chats may begin before those that are under way have their turn.
_IN_A_TURN = 4


class ChatCompletions:
    """The endpoint, as a bare ASGI application: it is what every chat waits for."""

    def __init__(self, memory: ChatMemory, upstreams: Upstreams, defaults: Defaults, *, max_body: int) -> None:
        self._memory = memory
        self._upstreams = upstreams
        self._defaults = defaults
        self._max_body = max_body
        self._turns = Turns(_IN_A_TURN)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            raw = await read_whole(receive, self._max_body)
            await self._turns.take()
            body = read_body(raw)
            fields = body.fields
            caller = scope["state"][CALLER]
            steering = steer(fields, by_name(scope["headers"]), self._defaults, caller=caller)
        except Gone:
            return
        except TooLarge:
            await answer_too_large(send, self._max_body)
            return
        except NotAllowed as error:
            await answer_error(send, 403, str(error), code="not_allowed")
            return
        except MissingUser as error:
            await answer_error(send, 401, str(error), code="missing_user_id", param="user")
            return
        except InvalidField as error:
            await answer_error(send, 400, str(error), code="invalid_memory_field", param=error.name)
            return
        except InvalidInput as error:
            await answer_error(send, 400, str(error), code="invalid_body")
            return
        async with Watch(receive):
            await self._answer(scope, send, raw, body, fields, steering)

    async def _answer(
        self, scope: Scope, send: Send, raw: bytes, body: Body, fields: Mapping[str, Any], steering: Steering
    ) -> None:
        messages = fields.get("messages")
        if not isinstance(messages, list) or not body.has_one("messages") or not all(map(_is_message, messages)):
            # The upstream has its own words for what is wrong with it.
            steering, messages = _without_memory(steering), []
        exchange = await self._memory.begin(steering, messages)
        # Beside the upstream's work, so that nobody waits for the disk; done before the first byte is relayed.
        keeping = self._memory.behind(self._memory.keep_said(exchange)) if exchange.steering.writes else None
        model = fields.get("model")
        upstream = self._upstreams.of(model if isinstance(model, str) else "")
        changed = {} if exchange.messages is messages else {"messages": exchange.messages}
        if changed or not FIELDS.isdisjoint(fields):
            raw = body.rewritten(changed, without=FIELDS)
        headers = readable(to_upstream(scope["headers"], length=len(raw)))
        query = scope["query_string"].decode("latin-1")
        ask = Ask(method="POST", path=_PATH, query=query, headers=headers, body=raw, known=exchange.known)
        try:
            reply = await upstream.send(ask)
        except UpstreamUnavailable as error:
            if keeping:
                await asyncio.shield(keeping)
            _log.warning("%s", error)
            await answer_error(send, 502, str(error), code="upstream_unavailable", headers=_told(exchange))
            return
        try:
            if keeping:
                # A client that leaves now does not take what it said with it.
                await asyncio.shield(keeping)
            if lacks_key(scope, upstream, reply):
                await answer_error(send, 502, KEY_MISSING, code="upstream_key_missing", headers=_told(exchange))
            else:
                await self._relay(send, reply, exchange, streamed=fields.get("stream") is True)
        finally:
            await reply.close()

    async def _relay(self, send: Send, reply: Reply, exchange: Exchange, *, streamed: bool) -> None:
        found = by_name(reply.headers)
        streamed = streamed and found.get("content-type", "").startswith("text/event-stream")
        listener = Listener(streamed=streamed, encoding=found.get("content-encoding", ""))
        try:
            if 300 <= reply.status < 400:
                await _refuse_redirect(send, exchange)
            elif exchange.steering.tells_hits and not streamed and reply.status == 200:
                await _relay_with_hits(send, reply, exchange, listener)
            else:
                await send(head(reply.status, to_client(reply.headers, _told(exchange))))
                heard = exchange.steering.writes
                async for chunk in reply.chunks():
                    if heard:
                        listener.hear(chunk)
                    await send(part(chunk, more=True))
                await send(part(b"", more=False))
        except UpstreamBroken as error:
            # Not ended as an answer ends, the connection is closed: the client must not take it for whole.
            _log.warning("%s", error)
        finally:
            if reply.status < 300 and exchange.steering.writes:
                self._memory.behind(self._keep_answer(exchange, listener))

    async def _keep_answer(self, exchange: Exchange, listener: Listener) -> None:
        await self._memory.keep_answer(exchange, listener.text())


def _is_message(value: object) -> bool:
    return isinstance(value, dict)


def _without_memory(steering: Steering) -> Steering:
    return Steering(scope=steering.scope, reads=False, writes=False)


def _told(exchange: Exchange) -> dict[str, str]:
    told = {"x-memory-status": exchange.status, "x-memory-hits": str(len(exchange.hits))}
    return told | {"x-memory-turn": exchange.turn_id} if exchange.turn_id else told


async def _refuse_redirect(send: Send, exchange: Exchange) -> None:
    message = "the upstream sends chats on to another address; set upstream_url to that address if it is trusted"
    await answer_error(send, 502, message, code="upstream_redirects", headers=_told(exchange))


async def _relay_with_hits(send: Send, reply: Reply, exchange: Exchange, listener: Listener) -> None:
    raw = bytearray()
    try:
        async for chunk in reply.chunks():
            listener.hear(chunk)
            raw += chunk
    except UpstreamBroken as error:
        # Nothing was sent yet, so it can be told.
        _log.warning("%s", error)
        await answer_error(send, 502, str(error), code="upstream_broken", headers=_told(exchange))
        return
    changed = with_hits(listener.plain, exchange.hits)
    length = len(raw) if changed is None else len(changed)
    headers = to_client(reply.headers, _told(exchange), length=None if changed is None else length)
    await send(head(reply.status, headers))
    await send(part(bytes(raw) if changed is None else changed, more=False))
