"""For every route: how it is called with one user's key and another user's ids.

A new route needs a line in CASES (or, if it tells nothing about anyone, in EXEMPT). Words in braces stand for what is
somebody else's: {user} {project} {session} {memory} {fact} {turn} {job} {entry} {review} {key}. `test_isolation.py`
makes each call

- with the key of a stranger: the status must be one of `answers`, nothing of the owner may be in the answer or reach
  an endpoint, and nothing of theirs may have changed;
- with ids that nobody has: the answer must be the same but for the ids;
- without a key, and with a wrong one: 401;
- with the owner's own key: it must work, or the case would prove nothing;
- with a key of the owner's for another project: nothing of this project may be in the answer;
- with a key that may only read (if `writes`) or only write (if it `reads`): 403.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

# The stranger is refused, or finds nothing of that id.
REFUSED = (403, 404)
ANY = tuple(range(200, 500))


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One way to call a route."""

    path: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    json: Any = None
    # What a stranger is answered; 200 where that is about the stranger's own.
    answers: tuple[int, ...] = REFUSED
    # What the owner is answered.
    owner: tuple[int, ...] = (200, 201, 202, 204)
    # Whether it needs the right to read, to write, or a key for everything.
    reads: bool = False
    writes: bool = False
    admin: bool = False


QUESTION = [{"role": "user", "content": "What do you know about the budget?"}]
CHAT = {"model": "m", "messages": QUESTION, "memory_hits": True}

CHATS = [
    Call(json={**CHAT, "user": "{user}"}, answers=(403,)),
    Call(json={**CHAT, "metadata": {"user_id": "{user}"}}, answers=(403,)),
    Call(json={**CHAT, "memory_context": {"user_id": "{user}", "project_id": "{project}"}}, answers=(403,)),
    Call(json=CHAT, headers={"X-Memory-User": "{user}"}, answers=(403,)),
    # The stranger's own project and session of the same names.
    Call(json={**CHAT, "memory_id": "{session}"}, headers={"X-Memory-Project": "{project}"}, answers=(200,)),
    Call(json=CHAT, headers={"X-Memory-Project": "{project}", "X-Memory-Session": "{session}"}, answers=(200,)),
]

# Memory has no part in these; what the endpoint answers is its business.
PASSED_ON = [Call(path={"path": "models"}, answers=ANY, owner=ANY)]

CASES: dict[str, list[Call]] = {
    "POST /v1/chat/completions": CHATS,
    "POST /chat/completions": CHATS,
    **{f"{method} /v1/{{path:path}}": PASSED_ON for method in ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")},
}

EXEMPT: dict[str, str] = {
    "GET /live": "only says that the process is there",
    "GET /health": "tells how the server is set up",
    "GET /ready": "tells whether the ledger answers",
    "GET /version": "tells what runs here",
    "GET /openapi.json": "describes the routes",
    "GET /docs": "shows that description",
    "GET /docs/oauth2-redirect": "is a part of that page",
    "GET /redoc": "shows that description",
}
