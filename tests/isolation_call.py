"""How a case of the isolation matrix is written: one way to call a route.

Words in braces stand for what is the owner's:

- {user} {project} {session} {memory} {fact} {turn} {review} {key} {entry}
- {own} a memory that lives in the session, {gone} a forgotten one, {episode} {erased}
- {job} one that waits, {cancelled} one that does not
- {response} {conversation} {item}, and {mem0}: the memory's id as mem0's routes give it to a key for everyone

`test_isolation.py` makes each call

- with the key of a stranger: the status must be one of `answers`, nothing of the owner may be in the answer or reach
  an endpoint, and nothing of theirs may have changed;
- with ids that nobody has: the answer must be the same but for the ids;
- without a key, and with a wrong one: 401, in the shape of errors that the door has;
- with the owner's own key: it must work, or the case would prove nothing;
- with a key of the owner's for another project: nothing of this project may be in the answer or change, and what is
  there must be answered like what is not; 403 where it concerns the `whole` user;
- with a key that may only read (if it `writes`) or only write (if it `reads`), and one that is no admin's (if it is
  for an `admin`): 403.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

# The stranger is refused, or finds nothing of that id.
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
    # What a stranger is answered; 200 where that is about the stranger's own.
    answers: tuple[int, ...] = REFUSED
    # What the owner is answered.
    owner: tuple[int, ...] = (200, 201, 202, 204)
    # Whether it needs the right to read, to write, or a key for everything.
    reads: bool = False
    writes: bool = False
    admin: bool = False
    # Whether it concerns all projects of a user.
    whole: bool = False


Cases = dict[str, list[Call]]
