"""Cases for the doors of designs and services that people know; each path also with the slash that it lacks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from isolation_call import Call, Cases

READ: dict[str, Any] = {"reads": True}
ADD: dict[str, Any] = {"writes": True}
CHANGE: dict[str, Any] = {"reads": True, "writes": True}
MINE = (200, 201)
GATEWAY = {"x-authz-user-id": "{user}"}


def named(call: Call, *, mine: tuple[int, ...] = MINE) -> list[Call]:
    """The call about the owner by name, in the query and as a gateway would, and about the stranger's own."""
    return [
        replace(call, query={**call.query, "user_id": "{user}"}, answers=(403,)),
        replace(call, headers=GATEWAY, answers=(403,)),
        replace(call, answers=mine),
    ]


def naming_owner(call: Call, field: str, *, mine: tuple[int, ...] = MINE) -> list[Call]:
    """The call whose body names the owner, and the same about the stranger's own."""
    return [replace(call, json={**call.json, field: "{user}"}, answers=(403,)), replace(call, answers=mine)]


def by_id(call: Call, *ids: str, name: str = "memory_id") -> list[Call]:
    """The call with ids of the owner's."""
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
    )
}

_SAY = {"messages": [{"role": "user", "content": "The budget is 1"}], "infer": False}
_WHO = {"user_id": "{user}"}
# An owner who is bound to a user may not name another kind of owner, and nobody may name another user.
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


def _twin(route: str) -> str:
    return route[:-1] if route.endswith("/") else f"{route}/"


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

_COMPAT_ROUTES = {**MEMORY, **SESSIONS, **REACT, **MEM0, **AGENT}
# The same function answers: that it is reached in the same way needs one case.
COMPAT: Cases = {**_COMPAT_ROUTES, **{_twin(route): calls[:1] for route, calls in _COMPAT_ROUTES.items()}}
