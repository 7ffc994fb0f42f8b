"""POST /v1/chat/completions: recall, forward, relay, remember.

The request is forwarded unchanged except for one inserted message; the answer is relayed byte for byte.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from starlette.types import Receive, Scope, Send

from recollect.aio.throttle import LoopThrottle
from recollect.config.settings import Settings
from recollect.errors import InvalidInput, NotAllowed, RecollectError, UpstreamUnavailable
from recollect.http.auth.caller import STATE_CALLER, record_access
from recollect.http.errors import send_openai_error
from recollect.http.proxy.asgi_io import (
    ClientDisconnected,
    DisconnectWatcher,
    check_relayable,
    headers_by_name,
    headers_for_client,
    headers_for_upstream,
    receive_body,
    relay,
    response_body,
    response_start,
    with_readable_encodings,
)
from recollect.http.proxy.body import JsonBody, parse_body
from recollect.http.proxy.chat_memory import ChatContext, ChatMemory, hit_to_json
from recollect.http.proxy.memory_options import MEMORY_FIELDS, MemoryOptions, parse_memory_options
from recollect.http.proxy.sse import MAX_ANSWER_BYTES, StreamRecorder
from recollect.http.upstream.extractive import MODEL as BUILT_IN
from recollect.http.upstream.learning import UpstreamModels
from recollect.http.upstream.router import UpstreamRequest, UpstreamResponse, UpstreamRouter, buffer_response

_log = logging.getLogger("recollect")
_PATH = "/chat/completions"
# Chats that may begin before those in progress run again.
_CHATS_PER_TICK = 4


class ChatCompletions:
    """The endpoint as a bare ASGI application, without a framework's overhead."""

    def __init__(
        self, memory: ChatMemory, upstreams: UpstreamRouter, settings: Settings, models: UpstreamModels | None
    ) -> None:
        self._memory, self._upstreams, self._settings, self._models = memory, upstreams, settings, models
        self._throttle = LoopThrottle(_CHATS_PER_TICK)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            raw = await receive_body(receive, self._settings.max_body_mb << 20)
            await self._throttle.acquire()
            body = await parse_body(raw)
            fields = body.fields
            headers, caller = headers_by_name(scope["headers"]), scope["state"][STATE_CALLER]
            options = parse_memory_options(fields, headers, self._settings, caller=caller)
        except ClientDisconnected:
            return
        except (InvalidInput, NotAllowed) as error:
            await send_openai_error(send, error)
            return
        try:
            await record_access(scope, caller, options.scope.user)
        except RecollectError:
            # The chat goes on, without a look at memories that could not be recorded.
            options = replace(options, reads=False)
        async with DisconnectWatcher(receive):
            await self._answer(scope, send, raw, body, fields, options)

    async def _answer(
        self, scope: Scope, send: Send, raw: bytes, body: JsonBody, fields: Mapping[str, Any], options: MemoryOptions
    ) -> None:
        messages = fields.get("messages")
        if (
            not isinstance(messages, list)
            or not body.has_one("messages")
            or not all(isinstance(each, dict) for each in messages)
        ):
            # Invalid messages are left to the upstream to refuse, without memory.
            options, messages = MemoryOptions(scope=options.scope, reads=False, writes=False), []
        chat = await self._memory.begin(options, messages)
        options = chat.options
        # While the upstream works, so that nobody waits for the disk; done before the first byte is relayed. As a
        # task of its own it continues if the client leaves.
        storing = self._memory.tasks.start(self._memory.store_user_turns(chat)) if options.writes else None
        upstream = self._upstreams.for_model(fields.get("model"))
        if options.writes and self._models is not None:
            caller = scope["state"][STATE_CALLER]
            self._models.note_client_key(options.scope, upstream, scope["headers"], caller=caller)
        changed = {} if chat.messages is messages else {"messages": chat.messages}
        if changed or not MEMORY_FIELDS.isdisjoint(fields):
            raw = body.rewrite(changed, without=MEMORY_FIELDS)
        request = UpstreamRequest(
            method="POST",
            path=_PATH,
            query=scope["query_string"].decode("latin-1"),
            headers=with_readable_encodings(headers_for_upstream(scope["headers"], body_changed=True)),
            body=raw,
            memory=chat.request_memory,
        )
        reply: UpstreamResponse | None = None
        try:
            reply = await upstream.send(request)
            if storing:
                await asyncio.shield(storing)
            check_relayable(scope, upstream, reply)
            quotes_memory = upstream.name == BUILT_IN
            await self._relay(send, reply, chat, streamed=fields.get("stream") is True, quotes_memory=quotes_memory)
        except UpstreamUnavailable as error:
            if storing:
                # The headers report on it.
                await asyncio.shield(storing)
            await send_openai_error(send, error, chat.headers)
        finally:
            if reply is not None:
                await reply.close()

    async def _relay(
        self, send: Send, reply: UpstreamResponse, chat: ChatContext, *, streamed: bool, quotes_memory: bool
    ) -> None:
        reply_headers = headers_by_name(reply.headers)
        streamed = streamed and reply_headers.get("content-type", "").startswith("text/event-stream")
        recorder = StreamRecorder(streamed=streamed, encoding=reply_headers.get("content-encoding", ""))
        stores = reply.status < 300 and chat.options.writes
        try:
            if chat.options.include_hits and not streamed and reply.status == 200:
                await _relay_with_hits(send, reply, chat, recorder)
            else:
                headers = headers_for_client(reply.headers, chat.headers)
                await relay(send, reply, headers, recorder.feed if stores else None)
        finally:
            if stores:
                self._memory.tasks.start(self._store_answer(chat, recorder, quotes_memory))

    async def _store_answer(self, chat: ChatContext, recorder: StreamRecorder, quotes_memory: bool) -> None:
        await self._memory.store_answer(chat, await recorder.text(), quotes_memory=quotes_memory)


async def _relay_with_hits(send: Send, reply: UpstreamResponse, chat: ChatContext, recorder: StreamRecorder) -> None:
    """Relay a complete answer with `memory_hits` added, if it is a JSON object; one that is too large without."""
    buffered = await buffer_response(reply, max_bytes=MAX_ANSWER_BYTES)
    for part in buffered.parts:
        await recorder.feed(part)
    if not buffered.is_complete or recorder.is_too_large:
        _log.warning("an answer is larger than %d bytes; it is relayed without memory_hits", MAX_ANSWER_BYTES)
        chat.degraded_reason = chat.degraded_reason or "too_large"
        await relay(send, buffered, headers_for_client(reply.headers, chat.headers), recorder.feed)
        return
    try:
        hits = [hit_to_json(hit) for hit in chat.hits]
        body = (await parse_body(recorder.pending_bytes)).rewrite({"memory_hits": hits})
        extra = chat.headers | {"content-length": str(len(body))}
        headers = headers_for_client(reply.headers, extra, drop=(b"content-length", b"content-encoding"))
    except InvalidInput:
        body, headers = buffered.body, headers_for_client(reply.headers, chat.headers)
    await send(response_start(reply.status, headers))
    await send(response_body(body, more=False))
