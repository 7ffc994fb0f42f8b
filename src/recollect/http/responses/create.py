"""POST /v1/responses: recall, ask the upstream in its language, answer, remember."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from recollect.errors import UpstreamUnavailable
from recollect.http.auth.caller import WITHHELD, Caller
from recollect.http.proxy.hits import told_hit
from recollect.http.proxy.memory import Exchange
from recollect.http.responses.asgi import Request
from recollect.http.responses.asked import Asked, read_asked
from recollect.http.responses.before import Before, load_before
from recollect.http.responses.injected import edits_of, native_body
from recollect.http.responses.keeping import Keeper
from recollect.http.responses.loose import a_text
from recollect.http.responses.native import relay_native
from recollect.http.responses.parts import memory_headers
from recollect.http.responses.sending import judged, read_whole, relayed_headers, sent_headers, to_bytes
from recollect.http.responses.to_chat import to_chat
from recollect.http.responses.to_messages import Placed, check_translatable, to_messages
from recollect.http.responses.translated import answer_translated
from recollect.http.responses.wrong import BadRequest, error_object
from recollect.http.upstream.protocol import Ask, Header, Reply, Upstream
from recollect.http.upstream.upstreams import Keyed
from recollect.model.times import now


@dataclass(frozen=True, slots=True)
class _Turn:
    """One request on its way."""

    asked: Asked
    before: Before
    placed: Sequence[Placed]
    exchange: Exchange
    upstream: Upstream


async def create(request: Request) -> None:
    """Answer a request for a response; a client that goes away ends it."""
    asked = read_asked(await request.body())
    await request.unless_left(_create(request, asked))


def _check_allowed(asked: Asked, caller: Caller) -> None:
    """Going on from something reads it, and adds to it where that is a conversation."""
    if asked.previous_id or asked.thread_id:
        caller.check_reads()
    if asked.thread_id:
        caller.check_writes()


async def _create(request: Request, asked: Asked) -> None:
    parts, begun_at = request.parts, now()
    steering = request.steered(asked.fields)
    _check_allowed(asked, request.caller)
    before = await load_before(asked, steering.scope, parts, caller=request.caller)
    upstream = parts.upstream_of(asked.model)
    items = _resolved(asked, before, shared=_is_shared(request, upstream))
    asked = replace(asked, items=items, store=asked.store and request.caller.writes)
    if parts.speech.of(upstream.name) == "translate":
        # Nothing is remembered of what cannot be asked.
        _check_translatable(asked)
    placed = to_messages([*before.items, *asked.items])
    steered = replace(steering, scope=before.scope)
    exchange = await parts.memory.begin(steered, [each.message for each in placed])
    turn = _Turn(asked, before, placed, exchange, upstream)
    # In a task of its own: what the user said is kept even if they leave now.
    said = parts.tasks.start(parts.memory.keep_said(exchange))
    try:
        is_native, reply = await _sent(request, turn)
    except UpstreamUnavailable as error:
        await asyncio.shield(said)
        body = error_object(str(error), kind="server_error", code="upstream_unavailable")
        await request.answer_json(body, memory_headers(exchange), status=502)
        return
    try:
        await asyncio.shield(said)
        if reply.status >= 400:
            whole = await read_whole(reply)
            headers = [*relayed_headers(whole.headers), *memory_headers(exchange)]
            await request.answer(whole.status, whole.body, headers)
            return
        keeper = Keeper(parts=parts, asked=asked, before=before, exchange=exchange, begun_at=begun_at)
        hits = list(map(told_hit, exchange.hits)) if steering.tells_hits else None
        if is_native:
            await relay_native(request, reply, keeper, upstream=turn.upstream.name, hits=hits)
        else:
            await answer_translated(request, reply, keeper, hits=hits)
    finally:
        await reply.close()


async def _sent(request: Request, turn: _Turn) -> tuple[bool, Reply]:
    """The reply, and whether it is one of the Responses API."""
    parts, name = request.parts, turn.upstream.name
    mode = parts.speech.of(name)
    headers = sent_headers(request.headers)
    if mode != "translate":
        reply = await _sent_native(turn, headers)
        if mode == "native":
            return True, reply
        speaks, reply = await judged(reply, turn.asked)
        if speaks:
            if reply.status < 400:
                parts.speech.learned(name, "native")
            return True, reply
    _check_translatable(turn.asked)
    chat = to_bytes(to_chat(turn.asked.fields, turn.exchange.messages))
    reply = await turn.upstream.send(_chat_ask(headers, chat, turn))
    if mode == "auto" and reply.status not in (404, 405):
        parts.speech.learned(name, "translate")
    return False, reply


def _chat_ask(headers: Sequence[Header], body: bytes, turn: _Turn) -> Ask:
    return Ask(method="POST", path="/chat/completions", headers=headers, body=body, known=turn.exchange.known)


async def _sent_native(turn: _Turn, headers: Sequence[Header]) -> Reply:
    """The reply to the request as it came; an upstream that has lost what came before is told it again."""
    asked, before, upstream = turn.asked, turn.before, turn.upstream
    edits = edits_of(turn.placed, turn.exchange.messages, count=len(before.items) + len(asked.items))
    body = native_body(asked, before, edits, upstream=upstream.name)
    reply = await upstream.send(Ask(method="POST", path="/responses", headers=headers, body=body))
    if not asked.previous_id or before.upstream != upstream.name or reply.status not in (400, 404):
        return reply
    whole = await read_whole(reply)
    if asked.previous_id.encode() not in whole.body:
        return whole
    body = native_body(asked, replace(before, upstream=""), edits, upstream=upstream.name)
    return await upstream.send(Ask(method="POST", path="/responses", headers=headers, body=body))


def _check_translatable(asked: Asked) -> None:
    check_translatable(asked.items)
    to_chat(asked.fields, ())


def _is_shared(request: Request, upstream: Upstream) -> bool:
    """Whether the upstream keeps what all callers say in one place, and would give anyone's items to anyone."""
    is_alone = request.caller.kind == "local"
    return not is_alone and (isinstance(upstream, Keyed) or bool(request.scope["state"].get(WITHHELD)))


def _resolved(asked: Asked, before: Before, *, shared: bool) -> Sequence[dict[str, Any]]:
    """The items that are asked, with those that only name an item of what came before in full.

    What names an item of something else is left to the upstream, unless that is `shared`.
    """
    known = {id: item for item in before.items if (id := a_text(item.get("id")))}
    items = []
    for at, item in enumerate(asked.items):
        if item.get("type") != "item_reference":
            items.append(item)
        elif found := known.get(a_text(item.get("id"))):
            items.append(found)
        elif asked.previous_id or asked.thread_id or shared:
            raise BadRequest(f"Item with id '{item.get('id')}' not found.", param=f"input[{at}].id", code="not_found")
        else:
            items.append(item)
    return items
