"""A ledger, a fixed time and memories of any age for tests of maintenance."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from recollect.ledger.ledger import Ledger
from recollect.ledger.sqlite import open_sqlite
from recollect.maintenance.tasks import MaintenanceReport, MaintenanceRun
from recollect.model.change import Add, Author
from recollect.model.ids import new_id
from recollect.model.memory import TYPE_OF_CATEGORY, Category, MemoryRecord, MemoryType, Status
from recollect.model.query import Listing
from recollect.model.scope import Level, Scope
from recollect.models.embedding import Embedder, EmbeddingModel

NOW = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
ANN = Scope("ann")
BY = Author("test")
EVERY = Listing(statuses=tuple(Status), limit=10_000)
MODEL = EmbeddingModel("samples", 8)


@asynccontextmanager
async def ledger_in(folder: Path, model: EmbeddingModel = MODEL) -> AsyncIterator[Ledger]:
    ledger = await open_sqlite(folder / "recollect.db", model)
    try:
        yield ledger
    finally:
        await ledger.close()


def days(number: float) -> datetime:
    """Return the time that many days before NOW."""
    return NOW - timedelta(days=number)


def memory(content: str, *, age_days: float = 0, scope: Scope = ANN, **fields: Any) -> MemoryRecord:
    """Return a memory created and last changed `age_days` ago."""
    category = fields.pop("category", Category.FACT)
    usual: dict[str, Any] = {
        "level": Level.SESSION if scope.session else scope.default_level,
        "type": TYPE_OF_CATEGORY.get(category, MemoryType.SEMANTIC),
        "created_at": days(age_days),
        "updated_at": days(age_days),
    }
    return MemoryRecord(id=new_id(), scope=scope, category=category, content=content, **usual | fields)


async def keep(ledger: Ledger, *records: MemoryRecord, embedder: Embedder | None = None, by: Author = BY) -> None:
    vectors: Sequence[Any] = [None] * len(records)
    if embedder is not None:
        vectors = list(await embedder.embed([each.content for each in records]))
    for record, vector in zip(records, vectors, strict=True):
        await ledger.apply(record.scope, [Add(record, vector)], by=by)


async def contents(ledger: Ledger, *statuses: Status, user: str = "ann") -> set[str]:
    """Return the contents of the user's memories of the statuses, by default active."""
    page = await ledger.find(Scope(user), Listing(statuses=statuses or (Status.ACTIVE,), limit=10_000))
    return {each.content for each in page}


async def snapshot(ledger: Ledger, user: str = "ann") -> list[dict[str, Any]]:
    """Return all memories of a user, without version and update time."""
    page = await ledger.find(Scope(user), EVERY)
    return [
        {name: value for name, value in each.to_dict().items() if name not in ("version", "updated_at")}
        for each in page
    ]


async def undo(ledger: Ledger, report: MaintenanceReport) -> None:
    """Undo all changes of a run by one entry of its batch."""
    lines = await ledger.history(Scope(report.user), limit=1000)
    own = [line for line in lines if line.batch == report.batch]
    await ledger.undo(Scope(report.user), own[0].id, by=BY, whole=True)


def run(**options: Any) -> MaintenanceRun:
    return MaintenanceRun(**{"at": NOW, **options})


def reported_contents(report: MaintenanceReport) -> set[str]:
    """Return the contents of the memories of a report."""
    return {step.content for step in report.steps}
