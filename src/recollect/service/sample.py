"""Sample data for the page: an invented person's sessions, with a change, an end, an instruction and a review.

It lives in a project of its own, so that its keyed facts replace none of the user's.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recollect.errors import NotFound
from recollect.frozen_dataclass import frozen_dataclass
from recollect.model.change import Actor, Author
from recollect.model.erasure import ErasureRequest, Target
from recollect.model.ids import new_id
from recollect.model.memory import Category, Status
from recollect.model.query import Listing, Op, Where
from recollect.model.scope import Scope
from recollect.model.times import now
from recollect.remember import MemoryInput

if TYPE_CHECKING:
    from recollect.service.service import Service

SAMPLE_PROJECT = SAMPLE_TAG = "sample"
_MINUTE = timedelta(minutes=1)


@frozen_dataclass
class SampleReport:
    """The number of memories that were added; 0 if they are there already."""

    added: int
    sessions: tuple[str, ...]


@cache
def _sample() -> Mapping[str, Any]:
    text = Path(__file__).with_name("sample.json").read_text(encoding="utf-8")
    loaded: Mapping[str, Any] = json.loads(text)
    return loaded


def _session_names() -> tuple[str, ...]:
    return tuple(session["name"] for session in _sample()["sessions"])


async def add_sample(service: Service, user: str, *, by: Author) -> SampleReport:
    """Add the sample to the user's memories, unless it is there."""
    scope = Scope(user, SAMPLE_PROJECT)
    # Nobody approves what they proposed, and the sample has a review to approve.
    by = replace(by, who=f"{by.who} {SAMPLE_TAG}", actor=Actor.AGENT)
    if (await service.find(scope, _tagged(limit=1))).records:
        return SampleReport(0, _session_names())
    ids: dict[str, str] = {}
    lines = [line for session in _sample()["sessions"] for line in _lines(session, ids, now())]
    await service.transfer.import_lines(lines, user=user, done=0, by=by)
    change = dict(_sample()["change"])
    session, content = change.pop("session"), change.pop("memory")
    change["evidence"] = [ids[each] for each in change["evidence"]]
    replacement = MemoryInput(content=content, fields={**change, "tags": [SAMPLE_TAG]}, correction=True)
    await service.add(Scope(user, SAMPLE_PROJECT, session), replacement, by=by)
    ended = _sample()["ended"]
    ends_at = now() - timedelta(days=ended["days_ago"])
    await service.update(scope, ids[ended["id"]], {"valid_to": ends_at.isoformat()}, by=by)
    return SampleReport(1 + sum(line["category"] != Category.TURN for line in lines), _session_names())


async def remove_sample(service: Service, user: str, *, by: Author) -> int:
    """Erase the sessions of the sample, and memories with its tag in its project; return the number of records."""
    scope = Scope(user, SAMPLE_PROJECT)
    everything = Listing(statuses=tuple(Status))
    before = await service.count(scope, everything)
    for session in _session_names():
        with suppress(NotFound):
            inside = Scope(user, SAMPLE_PROJECT, session)
            await service.erasure.erase(inside, ErasureRequest(Target.SESSION), by=by)
    while page := (await service.find(scope, _tagged(limit=1))).records:
        await service.erasure.erase(Scope(user), ErasureRequest(Target.MEMORY, page[0].id), by=by)
    return before - await service.count(scope, everything)


def _tagged(*, limit: int) -> Listing:
    return Listing(filter=Where("tags", Op.CONTAINS, SAMPLE_TAG), statuses=tuple(Status), limit=limit)


def _lines(session: Mapping[str, Any], ids: dict[str, str], today: datetime) -> list[dict[str, Any]]:
    """Return the turns and memories of a session as lines of an export; `ids` gets those of the names in it."""
    at = today - timedelta(days=session["days_ago"])
    place = {"project_id": SAMPLE_PROJECT, "session_id": session["name"]}
    lines: list[dict[str, Any]] = []
    for number, turn in enumerate(session["turns"]):
        ids[turn["id"]] = new_id()
        said_at = (at + number * _MINUTE).isoformat()
        lines.append(
            {
                **place,
                "id": ids[turn["id"]],
                "memory": turn["text"],
                "category": str(Category.TURN),
                "type": "episodic",
                "created_at": said_at,
                "occurred_at": said_at,
                "source": "conversation",
                "trust": "high" if turn["role"] == "user" else "low",
                "detail": {"role": turn["role"], "position": number + 1},
            }
        )
    learned_at = (at + len(lines) * _MINUTE).isoformat()
    for memory in session["memories"]:
        id = ids[memory.get("id", "")] = new_id()
        evidence = [ids[each] for each in memory["evidence"]]
        more = {"id": id, "evidence": evidence, "tags": [SAMPLE_TAG], "source": "sample", "created_at": learned_at}
        lines.append({**memory, **place, **more, "level": "project"})
    return lines
