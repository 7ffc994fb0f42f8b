"""Cases for what speaks OpenAI's API: chats, Responses, Conversations, and what is passed on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from isolation_call import ANY, Call, Cases

READ: dict[str, Any] = {"reads": True}
WRITE_ONLY: dict[str, Any] = {"writes": True}
USER = {"X-Memory-User": "{user}"}
PLACE = {"X-Memory-Project": "{project}", "X-Memory-Session": "{session}"}
QUESTION = [{"role": "user", "content": "What do you know about the budget?"}]
CHAT = {"model": "m", "messages": QUESTION, "memory_hits": True}
ASK = {"model": "m", "input": "What do you know about the budget?", "memory_hits": True}


def names(call: Call) -> list[Call]:
    """The call with a body that names the owner, in every way there is."""
    report = [
        {"user": "{user}"},
        {"metadata": {"user_id": "{user}"}},
        {"memory_context": {"user_id": "{user}", "project_id": "{project}"}},
    ]
    messages = [replace(call, json={**(call.json or {}), **each}, answers=(403,)) for each in report]
    return [*messages, replace(call, headers=USER, answers=(403,))]


def by_stored_id(call: Call) -> list[Call]:
    """The call about something that is kept, by its id alone, and with the owner's name."""
    by_query = replace(call, query={**call.query, "user": "{user}"}, answers=(403,))
    ways = [replace(call, answers=(404,)), replace(call, headers=USER, answers=(403,))]
    # What has a body says it there.
    return ways if call.json is not None else [*ways, by_query]


_CHATS = [
    *names(Call(json=CHAT)),
    # The stranger's own project and session of the same names.
    Call(json={**CHAT, "memory_id": "{session}"}, headers={"X-Memory-Project": "{project}"}, answers=(200,)),
    Call(json=CHAT, headers=PLACE, answers=(200,)),
]
_GO_ON = {**ASK, "previous_response_id": "{response}"}
_REFERS = {**ASK, "input": [{"type": "item_reference", "id": "{item}"}, *QUESTION]}
_RESPONSE = Call(path={"response_id": "{response}"})
_CONVERSATION = Call(path={"conversation_id": "{conversation}"})
_ITEM = Call(path={"conversation_id": "{conversation}", "item_id": "{item}"})
_NEW_ITEMS = {"items": [{"type": "message", "role": "user", "content": "Hello"}]}
# Memory has no part in these; what the endpoint answers is its business.
_PASSED_ON = [Call(path={"path": "models"}, answers=ANY, owner=ANY)]

OPENAI: Cases = {
    "POST /v1/chat/completions": _CHATS,
    "POST /chat/completions": _CHATS,
    **{f"{method} /v1/{{path:path}}": _PASSED_ON for method in ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")},
    "POST /v1/responses": [
        *names(Call(json=ASK)),
        Call(json=ASK, headers=PLACE, answers=(200,)),
        Call(json=_GO_ON, answers=(400,), **READ),
        Call(json=_GO_ON, headers=USER, answers=(403,), **READ),
        Call(json={**_GO_ON, "store": False}, answers=(400,), **READ),
        Call(json={**ASK, "conversation": "{conversation}"}, answers=(404,), **READ, **WRITE_ONLY),
        Call(
            json={**ASK, "conversation": {"id": "{conversation}"}},
            headers=PLACE,
            answers=(404,),
            **READ,
            **WRITE_ONLY,
        ),
        Call(json={**_REFERS, "conversation": "{conversation}"}, answers=(404,), **READ, **WRITE_ONLY),
    ],
    "GET /v1/responses/{response_id}": by_stored_id(replace(_RESPONSE, reads=True)),
    "DELETE /v1/responses/{response_id}": by_stored_id(replace(_RESPONSE, writes=True)),
    # The owner is told that it is over.
    "POST /v1/responses/{response_id}/cancel": by_stored_id(replace(_RESPONSE, writes=True, owner=(400,))),
    "GET /v1/responses/{response_id}/input_items": by_stored_id(replace(_RESPONSE, reads=True)),
    "POST /v1/conversations": [
        *names(Call(json=_NEW_ITEMS, **WRITE_ONLY)),
        Call(json={**_NEW_ITEMS, "metadata": {"id": "{conversation}"}}, headers=PLACE, answers=(200,), **WRITE_ONLY),
    ],
    "GET /v1/conversations/{conversation_id}": by_stored_id(replace(_CONVERSATION, reads=True)),
    "POST /v1/conversations/{conversation_id}": by_stored_id(
        replace(_CONVERSATION, json={"metadata": {}}, writes=True)
    ),
    "DELETE /v1/conversations/{conversation_id}": by_stored_id(replace(_CONVERSATION, writes=True)),
    "GET /v1/conversations/{conversation_id}/items": by_stored_id(replace(_CONVERSATION, reads=True)),
    "POST /v1/conversations/{conversation_id}/items": by_stored_id(
        replace(_CONVERSATION, json=_NEW_ITEMS, writes=True)
    ),
    "GET /v1/conversations/{conversation_id}/items/{item_id}": by_stored_id(replace(_ITEM, reads=True)),
    "DELETE /v1/conversations/{conversation_id}/items/{item_id}": by_stored_id(replace(_ITEM, writes=True)),
}
