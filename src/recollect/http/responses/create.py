"""POST /v1/responses: recall, ask the upstream in its language, answer, remember."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from recollect.errors import UpstreamUnavailable
from recollect.http.auth.caller import STATE_KEY_REMOVED, Caller
from recollect.http.proxy.chat_memory import ChatContext, hit_to_json
from recollect.http.responses.asgi import AsgiRequest
from recollect.http.responses.context import memory_headers
from recollect.http.responses.errors import BadRequest, error_body
from recollect.http.responses.from_chat import answer_from_chat
from recollect.http.responses.items import as_text
from recollect.http.responses.passthrough import find_edits, native_body, relay_response
from recollect.http.responses.persistence import History, ResponseWriter, load_history
from recollect.http.responses.request import ResponseParams, parse_response_params
from recollect.http.responses.to_chat import IndexedMessage, check_translatable, to_chat, to_messages
from recollect.http.responses.upstream_io import (
    buffer_response,
    detect_responses_api,
    encode_json,
    relayed_headers,
    upstream_headers,
)
from recollect.http.upstream.protocol import Header, Upstream, UpstreamRequest, UpstreamResponse
from recollect.http.upstream.router import KeyedUpstream
from recollect.model.times import now


@dataclass(frozen=True, slots=True)
class _CreateCall:
    """One request on its way."""

    params: ResponseParams
    history: History
    messages: Sequence[IndexedMessage]
    chat: ChatContext
    upstream: Upstream


async def create(request: AsgiRequest) -> None:
    """Answer a request for a response; a client that goes away ends it."""
    params = parse_response_params(await request.body())
    await request.run_until_disconnect(_create(request, params))


def _check_allowed(params: ResponseParams, caller: Caller) -> None:
    """Going on from something reads it, and adds to it where that is a conversation."""
    if params.previous_id or params.thread_id:
        caller.check_can_read()
    if params.thread_id:
        caller.check_can_write()


async def _create(request: AsgiRequest, params: ResponseParams) -> None:
    context, started_at = request.context, now()
    options = request.memory_options(params.fields)
    _check_allowed(params, request.caller)
    history = await load_history(params, options.scope, context, caller=request.caller)
    upstream = context.upstream_of(params.model)
    items = _resolve_references(params, history, shared=_is_shared(request, upstream))
    params = replace(params, items=items, store=params.store and request.caller.writes)
    if context.support.mode_of(upstream.name) == "translate":
        # Nothing is remembered of what cannot be asked.
        _check_translatable(params)
    messages = to_messages([*history.items, *params.items])
    scoped_options = replace(options, scope=history.scope)
    chat = await context.memory.begin(scoped_options, [each.message for each in messages])
    call = _CreateCall(params, history, messages, chat, upstream)
    # In a task of its own: what the user said is kept even if they leave now.
    storing = context.tasks.start(context.memory.store_user_turns(chat))
    try:
        is_native, reply = await _send(request, call)
    except UpstreamUnavailable as error:
        await asyncio.shield(storing)
        body = error_body(str(error), kind="server_error", code="upstream_unavailable")
        await request.answer_json(body, memory_headers(chat), status=502)
        return
    try:
        await asyncio.shield(storing)
        if reply.status >= 400:
            buffered = await buffer_response(reply)
            headers = [*relayed_headers(buffered.headers), *memory_headers(chat)]
            await request.answer(buffered.status, buffered.body, headers)
            return
        writer = ResponseWriter(context=context, params=params, history=history, chat=chat, started_at=started_at)
        hits = list(map(hit_to_json, chat.hits)) if options.include_hits else None
        if is_native:
            await relay_response(request, reply, writer, upstream=call.upstream.name, hits=hits)
        else:
            await answer_from_chat(request, reply, writer, hits=hits)
    finally:
        await reply.close()


async def _send(request: AsgiRequest, call: _CreateCall) -> tuple[bool, UpstreamResponse]:
    """The reply, and whether it is one of the Responses API."""
    context, name = request.context, call.upstream.name
    mode = context.support.mode_of(name)
    headers = upstream_headers(request.headers)
    if mode != "translate":
        reply = await _send_native(call, headers)
        if mode == "native":
            return True, reply
        is_supported, reply = await detect_responses_api(reply, call.params)
        if is_supported:
            if reply.status < 400:
                context.support.record(name, "native")
            return True, reply
    _check_translatable(call.params)
    chat = encode_json(to_chat(call.params.fields, call.chat.messages))
    reply = await call.upstream.send(_chat_request(headers, chat, call))
    if mode == "auto" and reply.status not in (404, 405):
        context.support.record(name, "translate")
    return False, reply


def _chat_request(headers: Sequence[Header], body: bytes, call: _CreateCall) -> UpstreamRequest:
    return UpstreamRequest(
        method="POST", path="/chat/completions", headers=headers, body=body, memory=call.chat.request_memory
    )


async def _send_native(call: _CreateCall, headers: Sequence[Header]) -> UpstreamResponse:
    """The reply to the request as it came; an upstream that has lost what came before is told it again."""
    params, history, upstream = call.params, call.history, call.upstream
    edits = find_edits(call.messages, call.chat.messages, count=len(history.items) + len(params.items))
    body = native_body(params, history, edits, upstream=upstream.name)
    reply = await upstream.send(UpstreamRequest(method="POST", path="/responses", headers=headers, body=body))
    if not params.previous_id or history.upstream != upstream.name or reply.status not in (400, 404):
        return reply
    buffered = await buffer_response(reply)
    if params.previous_id.encode() not in buffered.body:
        return buffered
    body = native_body(params, replace(history, upstream=""), edits, upstream=upstream.name)
    return await upstream.send(UpstreamRequest(method="POST", path="/responses", headers=headers, body=body))


def _check_translatable(params: ResponseParams) -> None:
    check_translatable(params.items)
    to_chat(params.fields, ())


def _is_shared(request: AsgiRequest, upstream: Upstream) -> bool:
    """Whether the upstream keeps what all callers say in one place, and would give anyone's items to anyone."""
    is_alone = request.caller.kind == "local"
    return not is_alone and (
        isinstance(upstream, KeyedUpstream) or bool(request.scope["state"].get(STATE_KEY_REMOVED))
    )


def _resolve_references(params: ResponseParams, history: History, *, shared: bool) -> Sequence[dict[str, Any]]:
    """The items that are asked, with those that only name an item of what came before in full.

    What names an item of something else is left to the upstream, unless that is `shared`.
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
