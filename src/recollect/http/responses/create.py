"""POST /v1/responses: recall, ask the upstream in an API that it has, answer, remember."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from recollect.errors import UpstreamUnavailable
from recollect.http.auth.caller import STATE_KEY_REMOVED, Caller
from recollect.http.errors import send_openai_error
from recollect.http.proxy.asgi_io import (
    BadRequest,
    DisconnectWatcher,
    check_relayable,
    headers_by_name,
    headers_for_client,
    headers_for_upstream,
    relay,
)
from recollect.http.proxy.chat_memory import ChatContext, hit_to_json
from recollect.http.proxy.sse import read_object
from recollect.http.responses.from_chat import answer_from_chat
from recollect.http.responses.items import as_object, as_text
from recollect.http.responses.passthrough import native_body, relay_response
from recollect.http.responses.persistence import History, ResponseWriter, load_history
from recollect.http.responses.request import AsgiRequest, ResponseParams, parse_response_params
from recollect.http.responses.to_chat import IndexedMessage, check_translatable, to_chat, to_messages
from recollect.http.upstream.router import (
    Header,
    Upstream,
    UpstreamRequest,
    UpstreamResponse,
    buffer_response,
    uses_server_key,
)
from recollect.model.times import now

# Statuses by which servers report that they do not have a path.
_UNKNOWN_PATH_STATUSES = (404, 405, 501)


@dataclass(frozen=True, slots=True)
class _CreateCall:
    """One request in progress."""

    params: ResponseParams
    history: History
    messages: Sequence[IndexedMessage]
    chat: ChatContext
    upstream: Upstream


async def create_response(request: AsgiRequest) -> None:
    """Answer a request; a client that disconnects ends it."""
    params = await parse_response_params(await request.body())
    async with DisconnectWatcher(request.receive):
        await _create(request, params)


async def _create(request: AsgiRequest, params: ResponseParams) -> None:
    context, started_at = request.context, now()
    options = request.memory_options(params.fields)
    _check_allowed(params, request.caller)
    history = await load_history(params, options.scope, context, caller=request.caller)
    upstream = context.upstream_of(params.model)
    items = _resolve_references(params, history, shared=_is_shared(request, upstream))
    params = replace(params, items=items, store=params.store and request.caller.writes)
    if context.modes.get(upstream.name) == "translate":
        # Before anything is stored of a request that cannot be sent.
        _check_translatable(params)
    messages = to_messages([*history.items, *params.items])
    chat = await context.memory.begin(replace(options, scope=history.scope), [each.message for each in messages])
    if options.writes and context.models is not None:
        context.models.note_client_key(options.scope, upstream, request.headers, caller=request.caller)
    call = _CreateCall(params, history, messages, chat, upstream)
    # In a task of its own: the user's turns are stored even if the client leaves now.
    storing = context.tasks.start(context.memory.store_user_turns(chat))
    reply: UpstreamResponse | None = None
    try:
        is_native, reply = await _send(request, call)
        await asyncio.shield(storing)
        check_relayable(request.scope, upstream, reply)
        if reply.status >= 400:
            await relay(request.send, reply, headers_for_client(reply.headers, chat.headers))
            return
        writer = ResponseWriter(context=context, params=params, history=history, chat=chat, started_at=started_at)
        hits = list(map(hit_to_json, chat.hits)) if options.include_hits else None
        if is_native:
            await relay_response(request, reply, writer, upstream=upstream.name, hits=hits)
        else:
            await answer_from_chat(request, reply, writer, hits=hits)
    except UpstreamUnavailable as error:
        # The headers report on it.
        await asyncio.shield(storing)
        await send_openai_error(request.send, error, chat.headers)
    finally:
        if reply is not None:
            await reply.close()


def _check_allowed(params: ResponseParams, caller: Caller) -> None:
    """Continuing from something reads it, and adds to it if it is a conversation."""
    if params.previous_id or params.thread_id:
        caller.check_can_read()
    if params.thread_id:
        caller.check_can_write()


async def _send(request: AsgiRequest, call: _CreateCall) -> tuple[bool, UpstreamResponse]:
    """Return the reply, and whether it is one of the Responses API."""
    modes, name = request.context.modes, call.upstream.name
    mode = modes.get(name, "auto")
    headers = [
        each
        for each in headers_for_upstream(request.headers, body_changed=True)
        if each[0].lower() != b"accept-encoding"
    ]
    headers.append((b"accept-encoding", b"identity"))
    if mode != "translate":
        reply = await _send_native(call, headers)
        if mode == "native":
            return True, reply
        is_supported, reply = await _detect_responses_api(reply, call.params)
        if is_supported:
            if reply.status < 300:
                modes[name] = "native"
            return True, reply
    _check_translatable(call.params)
    body = json.dumps(to_chat(call.params.fields, call.chat.messages), separators=(",", ":")).encode()
    reply = await call.upstream.send(
        UpstreamRequest(
            method="POST", path="/chat/completions", headers=headers, body=body, memory=call.chat.request_memory
        )
    )
    if mode == "auto" and reply.status not in (404, 405):
        modes[name] = "translate"
    return False, reply


async def _send_native(call: _CreateCall, headers: Sequence[Header]) -> UpstreamResponse:
    """Send the request as it came; an upstream that has lost the history is sent it."""
    params, history, upstream = call.params, call.history, call.upstream

    async def send(history: History) -> UpstreamResponse:
        body = native_body(params, history, call.messages, call.chat.messages, upstream=upstream.name)
        return await upstream.send(UpstreamRequest(method="POST", path="/responses", headers=headers, body=body))

    reply = await send(history)
    if not params.previous_id or history.upstream != upstream.name or reply.status not in (400, 404):
        return reply
    buffered = await buffer_response(reply)
    if params.previous_id.encode() not in buffered.body:
        return buffered
    return await send(replace(history, upstream=""))


async def _detect_responses_api(reply: UpstreamResponse, params: ResponseParams) -> tuple[bool, UpstreamResponse]:
    """Return whether the upstream has the Responses API, and its reply, which may have been read for that."""
    if reply.status in _UNKNOWN_PATH_STATUSES:
        buffered = await buffer_response(reply)
        error = as_object((await read_object(buffered.body) or {}).get("error"))
        # Only a server that understood the request can refer to it.
        details = as_text(error.get("param")) or as_text(error.get("code"))
        return bool(error) and (bool(details) or params.model in str(error.get("message"))), buffered
    if reply.status == 200 and headers_by_name(reply.headers).get("content-type", "").startswith("application/json"):
        # Some servers answer any path with 200, and report in the body that there is no such path.
        buffered = await buffer_response(reply)
        answer = (await read_object(buffered.body) or {}) if buffered.is_complete else {"output": []}
        return answer.get("object") == "response" or "output" in answer, buffered
    return True, reply


def _check_translatable(params: ResponseParams) -> None:
    check_translatable(params.items)
    to_chat(params.fields, ())


def _is_shared(request: AsgiRequest, upstream: Upstream) -> bool:
    """Return whether the upstream stores the items of all callers under one account."""
    is_alone = request.caller.kind == "local"
    has_own_key = uses_server_key(upstream, headers_for_upstream(request.headers))
    return not is_alone and (has_own_key or bool(request.scope["state"].get(STATE_KEY_REMOVED)))


def _resolve_references(params: ResponseParams, history: History, *, shared: bool) -> Sequence[dict[str, Any]]:
    """Return the items with references to the history resolved.

    Other references are left to the upstream, unless its account is `shared`.
    """
    items_by_id = {id: item for item in history.items if (id := as_text(item.get("id")))}
    items = []
    for at, item in enumerate(params.items):
        if item.get("type") != "item_reference":
            items.append(item)
        elif referenced := items_by_id.get(as_text(item.get("id"))):
            items.append(referenced)
        elif params.previous_id or params.thread_id or shared:
            raise BadRequest(f"Item with id '{item.get('id')}' not found.", param=f"input[{at}].id", code="not_found")
        else:
            items.append(item)
    return items
