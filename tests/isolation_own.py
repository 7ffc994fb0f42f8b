"""Cases for the routes of our own API."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from isolation_call import NDJSON, Call, Cases

V1 = "/recollect/v1"
USER = {"X-Memory-User": "{user}"}
PERSON = {**USER, "X-Memory-Actor": "person"}
PLACE = {"X-Memory-Project": "{project}", "X-Memory-Session": "{session}"}
LINE = '{"id": "{memory}", "memory": "mine now", "user_id": "{user}", "project_id": "{project}"}\n'
# Those that many calls have in common.
READ: dict[str, Any] = {"reads": True}
ADD: dict[str, Any] = {"writes": True}
CHANGE: dict[str, Any] = {"reads": True, "writes": True}
WHOLE: dict[str, Any] = {"whole": True}


def placed(call: Call, *, mine: tuple[int, ...] = (200,)) -> list[Call]:
    """The call about the owner by name, in both ways, and about the stranger's own place of the same names."""
    return [
        replace(call, headers={**call.headers, **USER}, answers=(403,)),
        replace(call, query={**call.query, "user_id": "{user}", "project_id": "{project}"}, answers=(403,)),
        replace(call, headers={**call.headers, **PLACE}, answers=mine),
    ]


def of_user(call: Call, *, mine: tuple[int, ...] = (200,)) -> list[Call]:
    """The call about all of the owner by name, and about all of the stranger."""
    call = replace(call, whole=True)
    return [replace(call, headers={**call.headers, **USER}, answers=(403,)), replace(call, answers=mine)]


def by_memory_id(call: Call, id: str = "{memory}", *, name: str = "memory_id") -> list[Call]:
    """The call with the owner's id, and with their name as well."""
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
    # A program approves nothing, whoever's it is.
    Call(path={"memory_id": "{review}"}, answers=(404, 409), owner=(409,), **CHANGE),
]

OWN: Cases = {
    f"GET {V1}/memories": [
        *placed(Call(query={"as_of": "2999-01-01T00:00:00Z", "turns": True}, **READ)),
        *placed(Call(**READ)),
        Call(query={"turns": True, "status": "review"}, answers=(200,)),
    ],
    f"POST {V1}/list": [
        *placed(Call(json={"statuses": ["active", "review", "forgotten"], "turns": True}, **READ)),
        *placed(Call(json={"as_of": "2999-01-01T00:00:00Z", "turns": True}, **READ)),
    ],
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
        *placed(Call(json={"query": "budget", "as_of": "2999-01-01T00:00:00Z"}, **READ)),
    ],
    f"POST {V1}/recall": placed(Call(json={"messages": "What is my budget?", "trace": True}, **READ)),
    f"POST {V1}/remember": [
        *placed(Call(json={"messages": "I like tea"}, **ADD)),
        # The same key and words as the owner's: it is the stranger's own request.
        *placed(Call(json={"messages": "My budget is 10,000 dollars"}, headers={"Idempotency-Key": "k"}, **ADD)),
    ],
    f"GET {V1}/turns": placed(Call(**READ)),
    f"GET {V1}/sessions": of_user(Call(**READ)),
    f"GET {V1}/session": placed(Call(query={"session_id": "{session}"}, **READ), mine=(404,))[1:],
    f"POST {V1}/session/end": placed(Call(query={"session_id": "{session}"}, **CHANGE), mine=(404,))[1:],
    f"POST {V1}/session/runs": placed(Call(json=_RUN, **CHANGE)),
    f"GET {V1}/history": placed(Call(**READ)),
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
        # It becomes the stranger's own, and the owner's stays as it is; nobody can tell that the id is taken.
        Call(content=LINE, headers=NDJSON, answers=(200,), **ADD, **WHOLE),
    ],
    f"POST {V1}/erase": _ERASE,
    f"GET {V1}/erasures": of_user(Call(**READ)),
    f"GET {V1}/usage": of_user(Call(query={"part": ["user", "day"]}, **READ)),
    f"GET {V1}/stats": of_user(Call(**READ)),
    f"POST {V1}/upkeep": of_user(Call(json={"chores": ["expire"], "dry_run": True}, **CHANGE)),
    f"GET {V1}/version": [Call(answers=(200,))],
    **{
        f"GET {V1}/admin/{what}": [Call(answers=(403,), admin=True)]
        for what in ("users", "stats", "usage", "settings", "erasures")
    },
    f"GET {V1}/admin/jobs": [
        Call(answers=(403,), admin=True),
        Call(query={"of_user": "{user}"}, answers=(403,), admin=True),
    ],
    f"POST {V1}/admin/erasures/replay": [Call(json=_REPLAY, answers=(403,), admin=True)],
}
