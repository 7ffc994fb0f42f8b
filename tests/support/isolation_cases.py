"""The cases of the isolation tests: ways to call each route.

Names in braces are replaced by ids and names of the owner:

- {user} {project} {session} {memory} {fact} {turn} {review} {key} {entry}
- {recall} a recall in the log, {own} a memory that lives in the session, {gone} a forgotten one, {episode} {erased}
- {job} one that waits, {cancelled} one that does not
- {response} {conversation} {item}, and {mem0}: the memory's id as mem0's routes give it to a key for everyone

`test_isolation.py` makes each call

- with the key of a stranger: the status must be one of `answers`, and nothing of the owner may be in the answer,
  reach an upstream or change;
- with ids that nobody has: the answer must be the same except for the ids;
- without a key, and with a wrong one: 401, in the error format of the API;
- with the owner's key: it must succeed, or the case would prove nothing;
- with a key of the owner for another project: nothing of this project may be in the answer or change, and ids of this
  project must be answered like unknown ones; 403 where it concerns the `whole` user;
- with a key that may only read (if the call `writes`) or only write (if it `reads`), and one that is no admin's (if
  it is for an `admin`): 403.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

# The stranger may not do it, or the id is not found.
REFUSED = (403, 404)
ANY = tuple(range(200, 500))
NDJSON = {"Content-Type": "application/x-ndjson"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One way to call a route."""

    path: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    json: Any = None
    # A body that is no JSON.
    content: str | None = None
    # The statuses for a stranger; 200 where the call concerns the stranger's own memories.
    answers: tuple[int, ...] = REFUSED
    # The statuses for the owner.
    owner: tuple[int, ...] = (200, 201, 202, 204)
    # Whether it needs permission to read, to write, or an admin key.
    reads: bool = False
    writes: bool = False
    admin: bool = False
    # Whether it concerns all projects of a user.
    whole: bool = False


Cases = dict[str, list[Call]]


READ: dict[str, Any] = {"reads": True}
ADD: dict[str, Any] = {"writes": True}
CHANGE: dict[str, Any] = {"reads": True, "writes": True}
MINE = (200, 201)
GATEWAY = {"x-authz-user-id": "{user}"}


def named(call: Call, *, mine: tuple[int, ...] = MINE) -> list[Call]:
    """Return the call naming the owner in the query and in a gateway's header, and for the stranger."""
    return [
        replace(call, query={**call.query, "user_id": "{user}"}, answers=(403,)),
        replace(call, headers=GATEWAY, answers=(403,)),
        replace(call, answers=mine),
    ]


def naming_owner(call: Call, field: str, *, mine: tuple[int, ...] = MINE) -> list[Call]:
    """Return the call whose body names the owner, and the same for the stranger's own memories."""
    return [replace(call, json={**call.json, field: "{user}"}, answers=(403,)), replace(call, answers=mine)]


def by_id(call: Call, *ids: str, name: str = "memory_id") -> list[Call]:
    """Return the call with ids of the owner."""
    return [replace(call, path={**call.path, name: id}, answers=(404,)) for id in ids]


_LOOK = {"query": "What is the budget?"}
_PATCH = Call(path={"memory_id": "{memory}"}, json={"importance": 0.1}, **CHANGE)
_CHANGED = [
    *by_id(_PATCH, "{memory}", "{fact}"),
    *named(_PATCH, mine=(404,)),
    replace(_PATCH, json={"importance": 0.1, "user_id": "{user}"}, answers=(403,)),
]
_GET = Call(path={"memory_id": "{memory}"}, **READ)
_DELETE = Call(path={"memory_id": "{memory}"}, **CHANGE)

MEMORY: Cases = {
    "GET /v1/memory": [*named(Call(**READ)), Call(query={"project_id": "{project}"}, answers=MINE, **READ)],
    "POST /v1/memory": naming_owner(Call(json={"content": "It is 1", "project_id": "{project}"}, **ADD), "user_id"),
    "POST /v1/memory/search": [
        *naming_owner(Call(json={**_LOOK, "project_id": "{project}"}, **READ), "user_id"),
        Call(json=_LOOK, headers=GATEWAY, answers=(403,), **READ),
    ],
    "GET /v1/memory/{memory_id}": [*by_id(Call(**READ), "{memory}", "{fact}", "{own}"), *named(_GET, mine=(404,))],
    "PUT /v1/memory/{memory_id}": _CHANGED,
    "PATCH /v1/memory/{memory_id}": _CHANGED,
    "DELETE /v1/memory/{memory_id}": [*by_id(Call(**CHANGE), "{memory}", "{own}"), *named(_DELETE, mine=(404,))],
    "DELETE /v1/memory": [
        *named(Call(query={"project_id": "{project}"}, **CHANGE)),
        *named(Call(query={"type": "semantic"}, **CHANGE)),
        *named(Call(**CHANGE)),
    ],
}

_IN = {"sessionId": "{session}"}
_HERE: dict[str, Any] = {"path": _IN, "query": {"project_id": "{project}"}}
_ONE: dict[str, Any] = {**_HERE, "path": {**_IN, "memoryId": "{own}"}}
_NEW = {"content": "Rain is likely"}

SESSIONS: Cases = {
    "POST /api/sessions": named(Call(json={"sessionId": "{session}"}, query={"project_id": "{project}"}, **ADD)),
    "GET /api/sessions/{sessionId}/memories": named(Call(**_HERE, **READ), mine=(404,)),
    "POST /api/sessions/{sessionId}/memories": named(Call(**_HERE, json=_NEW, **ADD), mine=(404,)),
    "GET /api/sessions/{sessionId}/memories/relevant": named(
        Call(path=_IN, query={"query": "budget", "project_id": "{project}"}, **READ), mine=(404,)
    ),
    "GET /api/sessions/{sessionId}/memories/{memoryId}": named(Call(**_ONE, **READ), mine=(404,)),
    "DELETE /api/sessions/{sessionId}/memories/{memoryId}": named(Call(**_ONE, **CHANGE), mine=(404,)),
}

_COLLECTION = {"collection": "{project}"}
_TALK = {**_COLLECTION, "conversation_id": "{session}"}
_SUMMARY = {"query": "Go", "summary": "It went", "result": "gone"}

REACT: Cases = {
    f"POST /api/react/{verb}": naming_owner(call, "user", mine=mine)
    for verb, call, mine in (
        ("facts/store", Call(json={**_COLLECTION, "content": "Port 1", "source": "{session}"}, **ADD), MINE),
        ("facts/retrieve", Call(json={**_COLLECTION, **_LOOK}, **READ), MINE),
        ("facts/delete", Call(json={**_COLLECTION, "fact_id": "{memory}"}, **CHANGE), (404,)),
        ("episodes/store", Call(json={**_COLLECTION, "goal": "Deploy it", "steps": ["build"]}, **ADD), MINE),
        ("episodes/retrieve", Call(json={**_COLLECTION, **_LOOK}, **READ), MINE),
        ("conversations/get", Call(json=_TALK, **READ), MINE),
        ("conversations/update", Call(json={**_TALK, "invocation_summary": _SUMMARY}, **ADD), MINE),
        ("conversations/end", Call(json=_TALK, **ADD), (404,)),
        ("conversations/delete", Call(json=_TALK, **CHANGE), (404,)),
    )
}

_SAY = {"messages": [{"role": "user", "content": "The budget is 1"}], "infer": False}
_WHO = {"user_id": "{user}"}
# A caller limited to a user may not name another user.
_ADD = [
    *naming_owner(Call(json={**_SAY, "run_id": "{session}"}, **ADD), "user_id"),
    Call(json={**_SAY, "filters": _WHO}, answers=(403,), **ADD),
    Call(json={**_SAY, "agent_id": "{user}"}, answers=MINE, **ADD),
]
_FILTERED = [
    Call(json={"filters": _WHO}, answers=(403,), **READ),
    Call(json=_WHO, answers=(403,), **READ),
    Call(json={"filters": {"OR": [_WHO, {"run_id": "{session}"}]}}, answers=(403,), **READ),
    Call(json={"filters": {"user_id": {"in": ["{user}"]}}}, answers=(403,), **READ),
    Call(json={"filters": {"user_id": {"ne": "{user}"}}}, answers=(403,), owner=(200,), **READ),
    Call(json={"filters": {"user_id": "*"}}, answers=MINE, **READ),
    Call(json={"filters": {"memory_ids": ["{memory}", "{mem0}"]}}, answers=MINE, **READ),
    Call(json={"filters": {"run_id": "{session}"}}, answers=MINE, **READ),
]
_SEARCH = [replace(call, json={**call.json, **_LOOK}) for call in _FILTERED]
_LIST = [Call(query=_WHO, answers=(403,), **READ), Call(query={"run_id": "{session}"}, answers=MINE, **READ)]
_ALL = [
    Call(query=_WHO, answers=(403,), **CHANGE),
    Call(query={"run_id": "{session}"}, answers=MINE, **CHANGE),
    Call(query={"user_id": "*"}, answers=(400,), owner=(400,), **CHANGE),
]
_IDS = ("{memory}", "{fact}", "{own}", "{mem0}")
_READ_ONE = by_id(Call(**READ), *_IDS)
_PUT = by_id(Call(json={"text": "The budget is 2"}, **CHANGE), *_IDS)
_DELETE_ONE = by_id(Call(**CHANGE), *_IDS)
_HISTORY = by_id(Call(**READ), *_IDS, "{gone}")
_ENTITY = [
    Call(path={"kind": "user", "name": "{user}"}, answers=(403,), **CHANGE),
    Call(path={"kind": "run", "name": "{session}"}, answers=MINE, **CHANGE),
    Call(path={"kind": "agent", "name": "{user}"}, answers=MINE, **CHANGE),
]

MEM0: Cases = {
    "GET /v1/ping/": [Call(answers=(200,))],
    "POST /v1/memories/": _ADD,
    "POST /v3/memories/add/": _ADD[:2],
    "POST /v1/memories/search/": _SEARCH[:2],
    "POST /v2/memories/search/": _SEARCH[:2],
    "POST /v3/memories/search/": _SEARCH,
    "POST /v3/memories/": _FILTERED,
    "POST /v2/memories/": _FILTERED[:2],
    "GET /v1/memories/": _LIST,
    "DELETE /v1/memories/": [*_ALL, Call(query={"filters": '{"user_id": "{user}"}'}, answers=(403,), **CHANGE)],
    "GET /v1/memories/{memory_id}/": _READ_ONE,
    "PUT /v1/memories/{memory_id}/": _PUT,
    "DELETE /v1/memories/{memory_id}/": _DELETE_ONE,
    "GET /v1/memories/{memory_id}/history/": _HISTORY,
    "PUT /v1/batch/": [
        Call(json={"memories": [{"memory_id": id, "text": "x"}]}, answers=(404,), **CHANGE) for id in _IDS
    ],
    "DELETE /v1/batch/": [Call(json={"memories": [{"memory_id": id}]}, answers=(404,), **CHANGE) for id in _IDS],
    "GET /v1/entities/": [Call(answers=(200,), **READ)],
    "DELETE /v1/entities/{kind}/{name}/": _ENTITY,
    "DELETE /v2/entities/{kind}/{name}/": _ENTITY,
    "POST /memories": _ADD[:2],
    "GET /memories": _LIST,
    "DELETE /memories": _ALL,
    "POST /search": _SEARCH[:2],
    "GET /memories/{memory_id}": _READ_ONE,
    "PUT /memories/{memory_id}": _PUT,
    "DELETE /memories/{memory_id}": _DELETE_ONE,
    "GET /memories/{memory_id}/history": _HISTORY,
    "POST /reset": [Call(answers=(403,), admin=True)],
    "POST /configure": [Call(json={"llm": {}}, answers=(403,), owner=(403,))],
}


_AGENT = {"question": "What do you know about the budget?", "enable_memory": True}
_IN_DIARY = {"collection": "{project}", "conversation_id": "{session}"}
AGENT: Cases = {
    "POST /v1/agent": [
        Call(json={**_AGENT, "user": "{user}"}, answers=(403,), **CHANGE),
        Call(json={**_AGENT, "user": "{user}", **_IN_DIARY}, answers=(403,), **CHANGE),
        Call(json={**_AGENT, "user": "{user}", "enable_memory": False}, answers=(403,), **CHANGE),
        # The stranger's own collection and conversation of the same names.
        Call(json={**_AGENT, **_IN_DIARY}, answers=(200,), **CHANGE),
        Call(json={**_AGENT, **_IN_DIARY, "streaming": True}, answers=(200,), **CHANGE),
    ],
}

WRITE_ONLY: dict[str, Any] = {"writes": True}
USER = {"X-Memory-User": "{user}"}
PLACE = {"X-Memory-Project": "{project}", "X-Memory-Session": "{session}"}
QUESTION = [{"role": "user", "content": "What do you know about the budget?"}]
CHAT = {"model": "m", "messages": QUESTION, "memory_hits": True}
ASK = {"model": "m", "input": "What do you know about the budget?", "memory_hits": True}


def names(call: Call) -> list[Call]:
    """Return the call with bodies that name the owner in every possible way."""
    report = [
        {"user": "{user}"},
        {"metadata": {"user_id": "{user}"}},
        {"memory_context": {"user_id": "{user}", "project_id": "{project}"}},
    ]
    messages = [replace(call, json={**(call.json or {}), **each}, answers=(403,)) for each in report]
    return [*messages, replace(call, headers=USER, answers=(403,))]


def by_stored_id(call: Call) -> list[Call]:
    """Return the call for a stored item, by its id alone and with the owner's name."""
    by_query = replace(call, query={**call.query, "user": "{user}"}, answers=(403,))
    ways = [replace(call, answers=(404,)), replace(call, headers=USER, answers=(403,))]
    # A request with a body names the user there.
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
# Forwarded unchanged: the upstream decides the answer.
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
    # The response is complete, so that it cannot be cancelled.
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


V1 = "/recollect/v1"

PERSON = {**USER, "X-Memory-Actor": "person"}

LINE = '{"id": "{memory}", "memory": "mine now", "user_id": "{user}", "project_id": "{project}"}\n'
WHOLE: dict[str, Any] = {"whole": True}


def placed(call: Call, *, mine: tuple[int, ...] = (200,)) -> list[Call]:
    """Return the call naming the owner in header and query, and for the stranger's own scope with the same names."""
    return [
        replace(call, headers={**call.headers, **USER}, answers=(403,)),
        replace(call, query={**call.query, "user_id": "{user}", "project_id": "{project}"}, answers=(403,)),
        replace(call, headers={**call.headers, **PLACE}, answers=mine),
    ]


def of_user(call: Call, *, mine: tuple[int, ...] = (200,)) -> list[Call]:
    """Return the call for the whole owner by name, and for the whole stranger."""
    call = replace(call, whole=True)
    return [replace(call, headers={**call.headers, **USER}, answers=(403,)), replace(call, answers=mine)]


def by_memory_id(call: Call, id: str = "{memory}", *, name: str = "memory_id") -> list[Call]:
    """Return the call with the owner's id, and with their name as well."""
    call = replace(call, path={name: id})
    return [replace(call, answers=(404,)), replace(call, headers={**call.headers, **USER}, answers=(403,))]


_ERASE = [
    Call(json={"target": "memory", "id": "{memory}"}, answers=(404,), **CHANGE, **WHOLE),
    Call(json={"target": "turn", "id": "{turn}"}, answers=(404,), **CHANGE, **WHOLE),
    Call(
        json={"target": "session", "session_id": "{session}", "project_id": "{project}"},
        answers=(404,), **CHANGE, **WHOLE,
    ),
    Call(json={"target": "project", "project_id": "{project}"}, answers=(200, 404), **CHANGE, **WHOLE),
    Call(json={"target": "user"}, answers=(200,), **CHANGE, **WHOLE),
    Call(json={"target": "user"}, headers=USER, answers=(403,), **CHANGE, **WHOLE),
]  # fmt: skip
_REPLAY = {"erasures": [{"id": "{job}", "at": "2026-01-01T00:00:00Z", "user": "x", "target": "user"}]}
_RUN = {"goal": "Plan it", "steps": [{"kind": "action", "content": "looked"}], "answer": "done", "success": True}
_APPROVE = [
    Call(path={"memory_id": "{review}"}, headers=PERSON, answers=(403,), writes=True, admin=True),
    # Programs may not approve.
    Call(path={"memory_id": "{review}"}, answers=(404, 409), owner=(409,), **CHANGE),
]

_HOOK = {"session_id": "{session}", "prompt": "What is my budget?", "last_assistant_message": "It is set"}
_IN_PROJECT = {"X-Memory-Project": "{project}"}

OWN: Cases = {
    f"POST {V1}/hooks/{{client}}/{{event}}": [
        replace(Call(path={"client": client, "event": event}, json=_HOOK, **CHANGE), headers=headers, answers=answers)
        for client, event in (("claude-code", "recall"), ("codex", "brief"), ("gemini", "keep"), ("cursor", "save"))
        for headers, answers in (({**_IN_PROJECT, **USER}, (403,)), (_IN_PROJECT, (200,)))
    ],
    f"GET {V1}/memories": [
        *placed(Call(query={"as_of": "2999-01-01T00:00:00Z", "turns": True}, **READ)),
        *placed(Call(**READ)),
        Call(query={"turns": True, "status": "review"}, answers=(200,)),
    ],
    f"POST {V1}/list": [
        *placed(Call(json={"statuses": ["active", "review", "forgotten"], "turns": True}, **READ)),
        *placed(Call(json={"as_of": "2999-01-01T00:00:00Z", "turns": True}, **READ)),
    ],
    f"GET {V1}/facets": placed(Call(query={"turns": True, "status": ["active", "review"]}, **READ)),
    f"POST {V1}/facets": placed(Call(json={"statuses": ["active", "forgotten"], "turns": True}, **READ)),
    f"POST {V1}/memories": [
        *placed(Call(json={"content": "The budget is 1"}, **ADD), mine=(201,)),
        *placed(Call(json={"key": "budget", "value": "1"}, **ADD), mine=(201,)),
        Call(json={"content": "It costs 1", "evidence": ["{turn}"]}, answers=(201,), **ADD),
    ],
    f"POST {V1}/forget": placed(Call(json={"filters": {}}, **CHANGE)),
    f"GET {V1}/memories/{{memory_id}}": [
        *by_memory_id(Call(**READ)),
        *by_memory_id(Call(**READ), "{turn}"),
        *by_memory_id(Call(query={"as_of": "2999-01-01T00:00:00Z"}, **READ)),
    ],
    f"PATCH {V1}/memories/{{memory_id}}": by_memory_id(Call(json={"importance": 0.1}, **CHANGE)),
    f"DELETE {V1}/memories/{{memory_id}}": [
        *by_memory_id(Call(**CHANGE)),
        *by_memory_id(Call(query={"sources": False}, **CHANGE), "{fact}"),
    ],
    f"POST {V1}/memories/{{memory_id}}/restore": by_memory_id(Call(**CHANGE), "{gone}"),
    f"POST {V1}/search": [
        *placed(Call(json={"query": "budget", "explain": True, "trace": True}, **READ)),
        Call(json={"query": "budget", "filters": {"id": "{memory}"}}, answers=(200,), **READ),
        Call(json={"query": "budget", "trace": True, "memory_id": "{memory}"}, answers=(404,), **READ),
        *placed(Call(json={"query": "budget", "as_of": "2999-01-01T00:00:00Z"}, **READ)),
    ],
    f"POST {V1}/recall": [
        *placed(Call(json={"messages": "What is my budget?", "trace": True}, **READ)),
        Call(json={"messages": "What?", "trace": True, "memory_id": "{memory}"}, answers=(404,), **READ),
    ],
    f"GET {V1}/recalls": placed(Call(**READ)),
    f"GET {V1}/recalls/{{recall_id}}": by_memory_id(Call(**READ), "{recall}", name="recall_id"),
    f"POST {V1}/remember": [
        *placed(Call(json={"messages": "I like tea"}, **ADD)),
        # The same idempotency key and text as the owner's: it is the stranger's own request.
        *placed(Call(json={"messages": "My budget is 10,000 dollars"}, headers={"Idempotency-Key": "k"}, **ADD)),
    ],
    f"GET {V1}/turns": placed(Call(**READ)),
    f"GET {V1}/sessions": of_user(Call(**READ)),
    f"GET {V1}/session": placed(Call(query={"session_id": "{session}"}, **READ), mine=(404,))[1:],
    f"POST {V1}/session/end": placed(Call(query={"session_id": "{session}"}, **CHANGE), mine=(404,))[1:],
    f"POST {V1}/session/runs": placed(Call(json=_RUN, **CHANGE)),
    f"GET {V1}/history": placed(Call(**READ)),
    f"GET {V1}/graph": [
        *placed(Call(query={"around": "budget", "depth": 2, "superseded": True}, **READ)),
        *placed(Call(query={"around": "{memory}", "depth": 2}, **READ)),
        Call(query={"around": "{own}"}, headers=PLACE, answers=(200,), **READ),
    ],
    f"GET {V1}/memories/{{memory_id}}/history": [*by_memory_id(Call(**READ)), *by_memory_id(Call(**READ), "{gone}")],
    f"POST {V1}/undo": [
        Call(json={"change_id": "{entry}"}, answers=(404,), **CHANGE, **WHOLE),
        Call(json={"change_id": "{entry}"}, headers=USER, answers=(403,), **CHANGE, **WHOLE),
        Call(answers=(200,), **CHANGE, **WHOLE),
        Call(json={"anyones": True}, answers=(200,), **CHANGE, **WHOLE),
    ],
    f"GET {V1}/reviews": placed(Call(**READ)),
    f"PATCH {V1}/reviews/{{memory_id}}": by_memory_id(Call(json={"content": "Say nothing"}, **CHANGE), "{review}"),
    f"POST {V1}/reviews/{{memory_id}}/approve": _APPROVE,
    f"POST {V1}/reviews/{{memory_id}}/reject": by_memory_id(Call(**CHANGE), "{review}"),
    f"GET {V1}/jobs": of_user(Call(**READ)),
    f"GET {V1}/jobs/{{job_id}}": by_memory_id(Call(**READ, **WHOLE), "{job}", name="job_id"),
    f"POST {V1}/jobs/{{job_id}}/replay": by_memory_id(Call(**CHANGE, **WHOLE), "{cancelled}", name="job_id"),
    f"POST {V1}/jobs/{{job_id}}/cancel": by_memory_id(Call(**CHANGE, **WHOLE), "{job}", name="job_id"),
    f"GET {V1}/changes": [
        *of_user(Call(query={"after": 0, "within_s": 0}, **READ)),
        *of_user(Call(query={"within_s": 0}, headers={"Last-Event-ID": "1"}, **READ)),
        *of_user(Call(query={"within_s": 0}, headers={"Last-Event-ID": "1-7"}, **READ)),
    ],
    f"GET {V1}/export": [*placed(Call(**READ)), *placed(Call(query={"sessions": False}, **READ))],
    f"POST {V1}/import": [
        Call(content=LINE, headers={**NDJSON, **USER}, answers=(403,), **ADD, **WHOLE),
        # The import is the stranger's own; the answer does not reveal that the id exists.
        Call(content=LINE, headers=NDJSON, answers=(200,), **ADD, **WHOLE),
    ],
    f"POST {V1}/erase": _ERASE,
    f"GET {V1}/erasures": of_user(Call(**READ)),
    f"GET {V1}/usage": of_user(Call(query={"part": ["user", "day"]}, **READ)),
    f"GET {V1}/stats": of_user(Call(**READ)),
    f"POST {V1}/upkeep": of_user(Call(json={"chores": ["expire"], "dry_run": True}, **CHANGE)),
    f"POST {V1}/sample": of_user(Call(**CHANGE), mine=(201,)),
    f"DELETE {V1}/sample": of_user(Call(**CHANGE)),
    f"GET {V1}/version": [Call(answers=(200,))],
    f"GET {V1}/me": [Call(answers=(200,))],
    **{
        f"GET {V1}/admin/{what}": [Call(answers=(403,), admin=True)]
        for what in ("users", "stats", "usage", "settings", "erasures", "keys", "health", "audit", "backups")
    },
    # The ledger of these tests is in memory, which has no backup.
    f"POST {V1}/admin/backups": [Call(answers=(403,), owner=(501,), admin=True)],
    f"POST {V1}/admin/keys": [Call(json={"for_user": "{user}"}, answers=(403,), admin=True)],
    f"DELETE {V1}/admin/keys/{{key_id}}": [Call(path={"key_id": "{key}"}, answers=(403,), admin=True)],
    f"GET {V1}/admin/jobs": [
        Call(answers=(403,), admin=True),
        Call(query={"of_user": "{user}"}, answers=(403,), admin=True),
    ],
    f"POST {V1}/admin/erasures/replay": [Call(json=_REPLAY, answers=(403,), admin=True)],
}


def _mcp(method: str, **params: Any) -> Call:
    """Return a message of MCP; what a caller may not see is an error in the answer."""
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    accept = {"Accept": "application/json, text/event-stream"}
    # A tool that changes something answers a key that may only read with an error as its result.
    return Call(json=body, headers=accept, path={"project": "{project}"}, answers=(200,), **READ)


# tests/mcp/test_isolation.py has a case for every tool, resource and prompt.
_MESSAGES = [
    _mcp("tools/call", name="recall", arguments=_LOOK),
    *(_mcp("tools/call", name="show", arguments={"ids": [id]}) for id in ("{memory}", "{own}", "{turn}", "{review}")),
    *(_mcp("tools/call", name="forget", arguments={"id": id}) for id in ("{memory}", "{own}", "{gone}", "{turn}")),
    _mcp("tools/call", name="undo", arguments={}),
    _mcp("resources/read", uri="memory://profile"),
    _mcp("resources/read", uri="memory://recent"),
    _mcp("resources/read", uri="memory://{fact}"),
    _mcp("prompts/get", name="brief", arguments={"topic": "the budget"}),
    _mcp("prompts/get", name="what_do_you_know_about_me"),
]
MCP: Cases = {"POST /mcp": _MESSAGES, "POST /mcp/{project:path}": [replace(each, answers=MINE) for each in _MESSAGES]}

CASES: Cases = {
    **OWN,
    **MCP,
    **MEMORY,
    **SESSIONS,
    **REACT,
    **MEM0,
    **AGENT,
    **OPENAI,
    # Metrics contain no names or texts.
    "GET /metrics": [Call(answers=(200,))],
    "HEAD /metrics": [Call(answers=(200,))],
}

EXEMPT: dict[str, str] = {
    "GET /live": "only says that the process is alive",
    "GET /health": "returns the configuration of the server",
    "GET /ready": "returns whether the ledger answers",
    "GET /version": "returns the version",
    **{f"HEAD /{path}": "returns less than GET" for path in ("live", "health", "ready", "version")},
    "GET /openapi.json": "describes the routes",
    "GET /docs": "shows the description of the routes",
    "GET /docs/start.js": "is a part of that page",
    "GET /docs/swagger-ui-bundle.js": "is a part of that page",
    "GET /docs/swagger-ui.css": "is a part of that page",
    "GET /": "is the web page, which contains nothing of anyone",
    "GET /page/{path:path}": "is a part of that page",
    "POST /recollect/v1/login": "takes a key and returns whose it is",
    "POST /recollect/v1/logout": "deletes a cookie",
}
