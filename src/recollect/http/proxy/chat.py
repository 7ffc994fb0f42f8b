"""POST /v1/chat/completions: recall, send on, relay, remember.

The upstream gets the body as it came but for one message; the client gets the answer as it came, byte for byte.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from starlette.types import Receive, Scope, Send

from recollect.aio.throttle import LoopThrottle
from recollect.errors import InvalidInput, MissingUser, NotAllowed, UpstreamBroken, UpstreamUnavailable
from recollect.http.auth.caller import STATE_CALLER
from recollect.http.auth.credentials import KEY_MISSING, lacks_key
from recollect.http.proxy.asgi_io import (
    BodyTooLarge,
    ClientDisconnected,
    DisconnectWatcher,
    headers_by_name,
    headers_for_client,
    headers_for_upstream,
    receive_body,
    response_body,
    response_start,
    send_error,
    send_too_large,
    with_readable_encodings,
)
from recollect.http.proxy.body import JsonBody, parse_body
from recollect.http.proxy.chat_memory import ChatContext, ChatMemory, add_hits
from recollect.http.proxy.memory_options import (
    MEMORY_FIELDS,
    InvalidField,
    MemoryDefaults,
    MemoryOptions,
    parse_memory_options,
)
from recollect.http.proxy.stream_recorder import StreamRecorder
from recollect.http.upstream.protocol import UpstreamRequest, UpstreamResponse
from recollect.http.upstream.router import UpstreamRouter

_log = logging.getLogger("recollect")
_PATH = "/chat/completions"
# How many chats may begin before those that are under way have their turn.
_CHATS_PER_TICK = 4


class ChatCompletions:
    """The endpoint, as a bare ASGI application: it is what every chat waits for."""

    def __init__(
        self, memory: ChatMemory, upstreams: UpstreamRouter, defaults: MemoryDefaults, *, max_body: int
    ) -> None:
        self._memory = memory
        self._upstreams = upstreams
        self._defaults = defaults
        self._max_body = max_body
        self._throttle = LoopThrottle(_CHATS_PER_TICK)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            raw = await receive_body(receive, self._max_body)
            await self._throttle.acquire()
            body = parse_body(raw)
            fields = body.fields
            caller = scope["state"][STATE_CALLER]
            options = parse_memory_options(fields, headers_by_name(scope["headers"]), self._defaults, caller=caller)
        except ClientDisconnected:
            return
        except BodyTooLarge:
            await send_too_large(send, self._max_body)
            return
        except NotAllowed as error:
            await send_error(send, 403, str(error), code="not_allowed")
            return
        except MissingUser as error:
            await send_error(send, 401, str(error), code="missing_user_id", param="user")
            return
        except InvalidField as error:
            await send_error(send, 400, str(error), code="invalid_memory_field", param=error.name)
            return
        except InvalidInput as error:
            await send_error(send, 400, str(error), code="invalid_body")
            return
        async with DisconnectWatcher(receive):
            await self._answer(scope, send, raw, body, fields, options)

    async def _answer(
        self, scope: Scope, send: Send, raw: bytes, body: JsonBody, fields: Mapping[str, Any], options: MemoryOptions
    ) -> None:
        messages = fields.get("messages")
        if not isinstance(messages, list) or not body.has_one("messages") or not all(map(_is_message, messages)):
            # The upstream has its own words for what is wrong with it.
            options, messages = _disable_memory(options), []
        chat = await self._memory.begin(options, messages)
        # Beside the upstream's work, so that nobody waits for the disk; done before the first byte is relayed.
        storing = self._memory.run_in_background(self._memory.store_user_turns(chat)) if chat.options.writes else None
        model = fields.get("model")
        upstream = self._upstreams.for_model(model if isinstance(model, str) else "")
        changed = {} if chat.messages is messages else {"messages": chat.messages}
        if changed or not MEMORY_FIELDS.isdisjoint(fields):
            raw = body.rewrite(changed, without=MEMORY_FIELDS)
        headers = with_readable_encodings(headers_for_upstream(scope["headers"], length=len(raw)))
        query = scope["query_string"].decode("latin-1")
        request = UpstreamRequest(
            method="POST", path=_PATH, query=query, headers=headers, body=raw, memory=chat.request_memory
        )
        try:
            reply = await upstream.send(request)
        except UpstreamUnavailable as error:
            if storing:
                await asyncio.shield(storing)
            _log.warning("%s", error)
            await send_error(send, 502, str(error), code="upstream_unavailable", headers=_memory_headers(chat))
            return
        try:
            if storing:
                # A client that leaves now does not take what it said with it.
                await asyncio.shield(storing)
            if lacks_key(scope, upstream, reply):
                await send_error(send, 502, KEY_MISSING, code="upstream_key_missing", headers=_memory_headers(chat))
            else:
                await self._relay(send, reply, chat, streamed=fields.get("stream") is True)
        finally:
            await reply.close()

    async def _relay(self, send: Send, reply: UpstreamResponse, chat: ChatContext, *, streamed: bool) -> None:
        reply_headers = headers_by_name(reply.headers)
        streamed = streamed and reply_headers.get("content-type", "").startswith("text/event-stream")
        recorder = StreamRecorder(streamed=streamed, encoding=reply_headers.get("content-encoding", ""))
        try:
            if 300 <= reply.status < 400:
                await _refuse_redirect(send, chat)
            elif chat.options.include_hits and not streamed and reply.status == 200:
                await _relay_with_hits(send, reply, chat, recorder)
            else:
                await send(response_start(reply.status, headers_for_client(reply.headers, _memory_headers(chat))))
                is_recorded = chat.options.writes
                async for chunk in reply.chunks():
                    if is_recorded:
                        recorder.feed(chunk)
                    await send(response_body(chunk, more=True))
                await send(response_body(b"", more=False))
        except UpstreamBroken as error:
            # Not ended as an answer ends, the connection is closed: the client must not take it for whole.
            _log.warning("%s", error)
        finally:
            if reply.status < 300 and chat.options.writes:
                self._memory.run_in_background(self._store_answer(chat, recorder))

    async def _store_answer(self, chat: ChatContext, recorder: StreamRecorder) -> None:
        await self._memory.store_answer(chat, recorder.text())


def _is_message(value: object) -> bool:
    return isinstance(value, dict)


def _disable_memory(options: MemoryOptions) -> MemoryOptions:
    return MemoryOptions(scope=options.scope, reads=False, writes=False)


def _memory_headers(chat: ChatContext) -> dict[str, str]:
    headers = {"x-memory-status": chat.status, "x-memory-hits": str(len(chat.hits))}
    return headers | {"x-memory-turn": chat.turn_id} if chat.turn_id else headers


async def _refuse_redirect(send: Send, chat: ChatContext) -> None:
    message = "the upstream sends chats on to another address; set upstream_url to that address if it is trusted"
    await send_error(send, 502, message, code="upstream_redirects", headers=_memory_headers(chat))


async def _relay_with_hits(send: Send, reply: UpstreamResponse, chat: ChatContext, recorder: StreamRecorder) -> None:
    raw = bytearray()
    try:
        async for chunk in reply.chunks():
            recorder.feed(chunk)
            raw += chunk
    except UpstreamBroken as error:
        # Nothing was sent yet, so it can be told.
        _log.warning("%s", error)
        await send_error(send, 502, str(error), code="upstream_broken", headers=_memory_headers(chat))
        return
    changed = add_hits(recorder.pending_bytes, chat.hits)
    length = len(raw) if changed is None else len(changed)
    headers = headers_for_client(reply.headers, _memory_headers(chat), length=None if changed is None else length)
    await send(response_start(reply.status, headers))
    await send(response_body(bytes(raw) if changed is None else changed, more=False))
