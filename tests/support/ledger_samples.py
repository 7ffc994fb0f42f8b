"""Users, difficult texts and helpers of the ledger's conformance suite."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from recollect.ledger.ledger import Ledger
from recollect.model.change import Add, Applied, Author, Change, HistoryEntry
from recollect.model.ids import new_id
from recollect.model.job import Job, JobKind, NewJob
from recollect.model.memory import Category, MemoryRecord, MemoryType, Status, Trust
from recollect.model.query import Listing, parse_filter
from recollect.model.response import StoredResponse, Thread, ThreadItems
from recollect.model.scope import Level, Scope
from recollect.model.times import now
from recollect.model.turn import Role, Turn
from recollect.models.embedding import EmbeddingModel

if TYPE_CHECKING:
    from recollect.model.change import Vector


Open: TypeAlias = Callable[[], Awaitable[Ledger]]

MODEL = EmbeddingModel("suite", 8)
OTHER_MODEL = EmbeddingModel("suite-other", 4)
ANN = Scope("ann")
BOB = Scope("bob")
TALK = Scope("ann", "p", "s")
MONDAY = Scope("ann", "p", "monday")
TUESDAY = Scope("ann", "p", "tuesday")
LONG_S = 60.0
BY = Author("suite", "a test asked for it")
NOON = datetime(2026, 3, 15, 12, 0, 0, 123456, tzinfo=UTC)
ALL = Listing(statuses=tuple(Status), limit=1000)

ODD_TEXTS = {
    "emoji": "👩🏽‍🚀 likes 🍵, not ☕️",
    "right to left": "אוהבת תה ירוק · تحب الشاي الأخضر",
    "combining": "cafe\u0301 is not always café; Z\u0351\u036b\u0343\u036aalgo",
    "line ends": "one\r\ntwo\rthree\nfour\u2028five\u0085six\ttab\x0bvertical\x0cfeed",
    "quotes": '\'single\' "double" `back` \'\'doubled\'\' """tripled""" “curly” $tag$dollar$tag$',
    "backslashes": "\\ \\\\ \\n \\' \\\" \\u0000 \\x00 C:\\new\\table",
    "zero width": "a\u200bb\u200cc\u200dd\ufeffe\u2060f",
    "bidi": "\u202eevil\u202c \u2066isolated\u2069 \u200fmark",
    "tags": "plain \U000e0001\U000e0041\U000e007f hidden",
    "controls": "\x01\x02\x1b[31mred\x1b[0m\x7f\x1f\x9f",
    "sql": "Robert'); DROP TABLE memories; -- /* :user $1 ? %s %(x)s ?1 @p",
    "full text": 'tea AND NOT "tea OR tea* NEAR(tea, 2) ^tea words : {tea} tea:* & | ! <->',
    "json": '{"a": [1, null, "\\u0041"], "$.b": "x"} {braces} {user}',
    "patterns": "100% _under_ [a-z]* .+? (group)|\\1 ~ ^$",
    "not characters": "\ufffe \uffff \U0010ffff \ufffd",
    "spaces": "  leading, trailing and \u00a0\u3000 wide  ",
}
ODD_IDS = (
    "a:b", "a/b", "../a", "a%20b", "a b", " a", "a\\b", "a'b", 'a"b', "a;--", "%", "_", "*", "NULL", "0", "-1", "Ann",
    "ann ", "ANN", "änn", "a\u0308nn", "アン", "👩🏽‍🚀", "\u202enna", "a\u200bnn", "x" * 300,
)  # fmt: skip


def memory(content: Any = "likes green tea", **fields: Any) -> MemoryRecord:
    """Return a memory with default values."""
    usual: dict[str, Any] = {
        "scope": ANN,
        "id": new_id(),
        "level": Level.USER,
        "type": MemoryType.SEMANTIC,
        "category": Category.FACT,
        "created_at": NOON,
        "updated_at": NOON,
    }
    return MemoryRecord(content=content, **usual | fields)


def full_memory(content: str, *, scope: Scope = ANN, **fields: Any) -> MemoryRecord:
    """Return a memory without default values."""
    every: dict[str, Any] = {
        "level": Level.SESSION if scope.session else Level.USER,
        "type": MemoryType.PROCEDURAL,
        "category": Category.INSTRUCTION,
        "key": content,
        "value": content,
        "importance": 0.1,
        "confidence": 1 / 3,
        "source": content,
        "trust": Trust.LOW,
        "evidence": (content, new_id()),
        "tags": (content, "", "tag"),
        "metadata": {content: content, "n": [1, 1.5, True, None, {"deep": [content]}], "": ""},
        "detail": {"steps": [{content: content}], "empty": {}},
        "superseded_by": content,
        "status": Status.REVIEW,
        "prompt_digest": content,
        "version": 7,
        "access_count": 41,
    }
    names = ("created_at", "updated_at", "occurred_at", "valid_from", "valid_to", "expires_at", "last_accessed_at")
    every |= {name: NOON + timedelta(days=n, microseconds=n) for n, name in enumerate(names)}
    return memory(content, scope=scope, **every | fields)


def turn(content: str, *, role: Role = Role.USER, said_at: datetime = NOON, name: str | None = None) -> Turn:
    """Return a turn; `append` sets its scope."""
    return Turn(id=new_id(), scope=Scope("nobody yet"), role=role, content=content, said_at=said_at, name=name)


def direction(number: int, model: EmbeddingModel = MODEL) -> Vector:
    """Return a unit vector along one axis."""
    vector = np.zeros(model.dimensions, np.float32)
    vector[number % model.dimensions] = 1.0
    return vector


async def add(ledger: Ledger, *records: MemoryRecord) -> list[MemoryRecord]:
    """Write memories of one user; return them as stored."""
    applied = await ledger.apply(records[0].scope, [Add(record) for record in records], by=BY)
    return [outcome.record for outcome in applied.outcomes]


async def change(ledger: Ledger, *changes: Change, scope: Scope = ANN) -> Applied:
    """Apply changes for a user."""
    return await ledger.apply(scope, changes, by=BY)


async def say(ledger: Ledger, scope: Scope, *contents: str) -> tuple[Turn, ...]:
    """Add turns with these words to a session."""
    logged_turn = await ledger.append(scope, [turn(each) for each in contents], vectors=[None] * len(contents), by=BY)
    return logged_turn.turns


async def listed(ledger: Ledger, scope: Scope, filter: Any = None, **options: Any) -> set[str]:
    """Return the texts of the memories of a listing."""
    page = await ledger.find(scope, replace(ALL, filter=parse_filter(filter), **options))
    return {record.content for record in page}


async def now_of(ledger: Ledger, record: MemoryRecord) -> MemoryRecord:
    """Return the memory."""
    (results,) = await ledger.get(record.scope, [record.id])
    return results


async def last_entry(ledger: Ledger, scope: Scope = ANN, *, memory_id: str | None = None) -> HistoryEntry:
    """Return the newest history entry."""
    return (await ledger.history(scope, memory_id=memory_id, limit=1))[0]


async def row_of(ledger: Ledger, record: MemoryRecord) -> int:
    """Return the row number of a memory."""
    seen = Scope(record.scope.user, record.scope.project, record.scope.session)
    rows = await ledger.matching(seen, parse_filter({"id": record.id}))
    assert len(rows) == 1
    return int(rows[0])


async def scores_of(ledger: Ledger, scope: Scope, text: str) -> dict[str, float]:
    """Return the texts that a full text search finds."""
    scored = await ledger.lexical(scope, text)
    by_row = dict(zip(scored.rows.tolist(), scored.scores.tolist(), strict=True))
    results = await ledger.fetch(scope, list(by_row), filter=parse_filter(None))
    return {each.record.content: by_row[each.row] for each in results}


async def everything(ledger: Ledger, users: Sequence[str]) -> dict[str, Any]:
    """Return all readable data of some users, to detect changes."""
    state: dict[str, Any] = {"users": await ledger.users(), "stats": dict(await ledger.stats())}
    state["stats"].pop("bytes")
    for user in users:
        scope = Scope(user)
        state[user] = (
            (await ledger.find(scope, ALL)).records,
            await ledger.history(scope, limit=1000),
            await ledger.index_rows(user, model=MODEL, after=0),
            await scores_of(ledger, scope, "tea coffee water milk"),
        )
    return state


def response(id: str = "resp_1", *, scope: Scope = TALK, text: str = "tea", **fields: Any) -> StoredResponse:
    """Return a response, by default the first of its chain."""
    usual: dict[str, Any] = {
        "root_id": id,
        "created_at": now(),
        "expires_at": now() + timedelta(days=30),
        "body": {"id": id, "output": [{"text": text}]},
        "input_items": ({"role": "user", "content": text},),
    }
    return StoredResponse(id=id, scope=scope, **usual | fields)


def thread(id: str = "conv_1", *, scope: Scope = TALK, **fields: Any) -> Thread:
    """Return an empty thread."""
    usual: dict[str, Any] = {"created_at": now(), "expires_at": now() + timedelta(days=30), "metadata": {"a": "b"}}
    return Thread(id=id, scope=scope, **usual | fields)


def items(*ids: str, thread_id: str = "conv_1", **fields: Any) -> ThreadItems:
    """Return items with these ids."""
    return ThreadItems(
        thread_id, [{"id": id, "type": "message", "content": f"words of {id}"} for id in ids], **fields
    )


async def keep(ledger: Ledger, *responses: StoredResponse, **more: Any) -> None:
    for each in responses:
        await ledger.save_response(each.scope, each, started_at=each.created_at, **more)


def new(key: str = "", *, kind: JobKind = JobKind.EXTRACT, **fields: Any) -> NewJob:
    """Return a job that is due now."""
    return NewJob(kind=kind, key=key, **fields)


async def put(ledger: Ledger, *jobs: NewJob, scope: Scope = ANN) -> list[Job]:
    """Enqueue jobs for a user."""
    return list(await ledger.enqueue(scope, jobs))


async def take(ledger: Ledger, limit: int = 1, *, lease_s: float = LONG_S, **options: Any) -> list[Job]:
    """Lease some jobs."""
    return await ledger.lease(worker="suite", limit=limit, lease_s=lease_s, **options)
