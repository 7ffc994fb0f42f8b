"""Two users with rows in every table of PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import asyncpg

from recollect.ledger.ledger import Ledger
from recollect.ledger.postgres import open_postgres
from recollect.model.change import Add, IdempotencyToken, ModelUsage
from recollect.model.erasure import ErasureRequest, Target, TombstoneSet, user_digest
from recollect.model.job import JobKind, MaintenancePayload, NewJob
from recollect.model.scope import Scope
from recollect.model.times import now
from tests.support.ledger_samples import BY, MODEL, direction, items, keep, memory, response, thread, turn
from tests.support.postgres_server import SUPERUSER, running_server

ANN, BOB = Scope("ann", "p", "s"), Scope("bob", "p", "s")
# Tables without a policy, and why none is needed.
OF_NOBODY = {
    "meta": "says what the store is",
    "models": "names embedding models",
    "model_states": "says how far embedding models are",
    "current_model": "says which embedding model is searched",
    "moments": "says when the store was looked after",
    "usage_of_all": "adds up all users, without names",
    "feeders": "says which process feeds an index",
    "audit": "names users by digest, for administrators alone",
    "api_keys": "tells whose a key is, so it is read before anyone knows whose rows are asked for",
}
NAMES = "SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY tablename"


@dataclass(frozen=True)
class Store:
    """A ledger in which ann and bob have rows in every table."""

    ledger: Ledger
    dsn: str
    admin: Any
    ids: dict[str, dict[str, Any]]

    async def tables(self) -> list[str]:
        return [name for (name,) in await self.admin.fetch(NAMES) if name not in OF_NOBODY]

    async def everything(self, user: str) -> dict[str, set[str]]:
        """Return all rows with the user's name or digest, by table, as a superuser."""
        request = {table: f"SELECT t::text FROM {table} t WHERE user_id = ANY ($1)" for table in await self.tables()}
        names = [user, user_digest(user)]
        return {table: {row[0] for row in await self.admin.fetch(sql, names)} for table, sql in request.items()}


async def fill(ledger: Ledger, scope: Scope) -> dict[str, Any]:
    """Write a row of the user into every table."""
    user = scope.user
    adds = [
        Add(memory(f"{user} likes tea {n}", scope=scope, key=f"k{n}", evidence=("said",)), direction(n))
        for n in range(3)
    ]
    applied = await ledger.apply(scope, adds, by=BY, once=IdempotencyToken("once", "digest"))
    job = NewJob(kind=JobKind.UPKEEP, key="k", payload=MaintenancePayload(chore="expire"))
    logged_turn = await ledger.append(scope, [turn(f"{user} said tea"), turn("gone")], vectors=[None, None], by=BY)
    await ledger.enqueue_due([(scope, job)])
    await keep(ledger, response(scope=scope))
    await ledger.save_thread(scope, thread(scope=scope))
    await ledger.add_items(scope, items("msg_1"))
    await ledger.apply(scope, [], by=BY, effects=[ModelUsage(user=user, step="s", model="m", tokens_in=5, at=now())])
    await ledger.erase(scope, ErasureRequest(Target.TURN, logged_turn.turns[1].id), by=BY)
    await ledger.put_tombstones(user, TombstoneSet(("a key",), {"a digest": now()}))
    await ledger.lease_feed("index", feeder="f", lease_s=60)
    await ledger.save_feed_positions("index", {user: await ledger.revision(user)}, feeder="f")
    record = applied.outcomes[0].record
    return {
        "memory": record.id,
        "turn": logged_turn.turns[0].id,
        "entry": (await ledger.history(scope, memory_id=record.id))[-1].id,
        "row": int((await ledger.lexical(scope, "tea")).rows[0]),
        "job": (await ledger.jobs(user))[0].id,
    }


_templates: dict[str, dict[str, dict[str, Any]]] = {}


async def _template(role: str) -> tuple[str, dict[str, dict[str, Any]]]:
    """Return the database of a role that others are copied from, and the ids in it; it is filled once per process."""
    name = f"filled_{role}"
    if role not in _templates:
        ledger = await open_postgres(await running_server().make(name, role=role), MODEL)
        _templates[role] = {scope.user: await fill(ledger, scope) for scope in (ANN, BOB)}
        await ledger.close()
    return name, _templates[role]


async def opened(role: str) -> AsyncIterator[Store]:
    template, ids = await _template(role)
    async with running_server().database(template, role=role) as dsn:
        ledger = await open_postgres(dsn, MODEL)
        admin = await asyncpg.connect(dsn.replace(f"//{role}@", f"//{SUPERUSER}@"))
        yield Store(ledger, dsn, admin, ids)
        await admin.close()
        await ledger.close()
