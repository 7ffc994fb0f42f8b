"""The embedding models of a ledger as rows: which one is searched, and who computes the vectors of another one."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from recollect.ledger.sql.tx import Tx, fetch_one
from recollect.ledger.sql.vectors import ensure_model_number, model_number
from recollect.ledger.types import EmbeddingProgress, ModelOrigin, ModelState, current_model_state
from recollect.model.times import from_micros, now, time_or_none, to_micros
from recollect.models.embedding import EmbeddingModel


async def model_states(tx: Tx) -> list[ModelState]:
    """Return every model that was ever searched, or is being prepared for it."""
    rows = await tx.rows(
        "SELECT s.model, m.name, m.dimensions, s.spec, s.url, s.asked_dimensions, s.current_at, s.retired_at, "
        "s.embedded, s.to_embed, s.held_until, c.model FROM model_states s JOIN models m ON m.number = s.model "
        "LEFT JOIN current_model c ON c.model = s.model ORDER BY s.model",
        {},
    )
    return [
        ModelState(
            model=EmbeddingModel(name, dimensions),
            origin=ModelOrigin(*origin),
            is_current=number == current,
            current_at=time_or_none(since),
            retired_at=time_or_none(until),
            embedded=embedded,
            to_embed=to_embed,
            lease_expires_at=from_micros(lease_end) if lease_end else None,
        )
        for (number, name, dimensions), origin, (since, until, embedded, to_embed, lease_end, current) in (
            (row[:3], row[3:6], row[6:]) for row in rows
        )
    ]


async def make_current(
    tx: Tx, model: EmbeddingModel, origin: ModelOrigin, *, replacing: EmbeddingModel | None
) -> ModelState:
    """Make a model the current one if `replacing` is current, or none is; return the one that is current then.

    The previous one is retired. If the model already is current only its origin is recorded.
    """
    number = await _ensure_state_row(tx, model)
    before = None if replacing is None else await model_number(tx, replacing)
    if await _claim_first(tx, number):
        await _mark_current(tx, number)
        await _put_origin(tx, number, origin)
    elif before is not None and await _move_current(tx, number, before):
        if before != number:
            await tx.run(
                "UPDATE model_states SET retired_at = :at WHERE model = :before",
                {"at": to_micros(now()), "before": before},
            )
            await _mark_current(tx, number)
        await _put_origin(tx, number, origin)
    current = current_model_state(await model_states(tx))
    assert current is not None
    return current


async def _claim_first(tx: Tx, number: int) -> bool:
    """Make a model current if none was before; of two concurrent attempts one succeeds."""
    first = await fetch_one(
        tx,
        "INSERT INTO current_model (only_row, model) VALUES (1, :model) "
        "ON CONFLICT (only_row) DO NOTHING RETURNING model",
        {"model": number},
    )
    return first is not None


async def _mark_current(tx: Tx, number: int) -> None:
    await tx.run(
        "UPDATE model_states SET current_at = :at, retired_at = NULL WHERE model = :model",
        {"at": to_micros(now()), "model": number},
    )


async def _move_current(tx: Tx, number: int, before: int) -> bool:
    """Make a model current if `before` was; return whether it was."""
    moved = await fetch_one(
        tx,
        "UPDATE current_model SET model = :model WHERE model = :before RETURNING model",
        {"model": number, "before": before},
    )
    return moved is not None


async def lease_model(
    tx: Tx,
    model: EmbeddingModel,
    origin: ModelOrigin,
    *,
    owner: str,
    lease_s: float,
    progress: EmbeddingProgress | None = None,
) -> bool:
    """Lease the computation of a model's vectors; return False while another owner has it. 0 seconds end it."""
    number = await _ensure_state_row(tx, model)
    moment = now()
    params: dict[str, Any] = {
        "model": number,
        "who": owner,
        "now": to_micros(moment),
        "until": to_micros(moment + timedelta(seconds=lease_s)),
    }
    count = ""
    if progress is not None:
        params |= {"done": progress.done, "total": progress.total}
        count = ", embedded = :done, to_embed = :total"
    leased = await fetch_one(
        tx,
        f"UPDATE model_states SET held_by = :who, held_until = :until{count} "
        "WHERE model = :model AND (held_by = :who OR held_until <= :now) RETURNING model",
        params,
    )
    if leased is not None and origin.spec:
        await _put_origin(tx, number, origin)
    return leased is not None


async def _put_origin(tx: Tx, number: int, origin: ModelOrigin) -> None:
    await tx.run(
        "UPDATE model_states SET spec = :spec, url = :url, asked_dimensions = :dimensions WHERE model = :model",
        {"spec": origin.spec, "url": origin.url, "dimensions": origin.dimensions, "model": number},
    )


async def _ensure_state_row(tx: Tx, model: EmbeddingModel) -> int:
    number = await ensure_model_number(tx, model)
    await tx.run("INSERT INTO model_states (model) VALUES (:model) ON CONFLICT (model) DO NOTHING", {"model": number})
    return number


async def count_embedded(tx: Tx, model: EmbeddingModel) -> EmbeddingProgress:
    """Return how many memories have a vector of the model; reads them all."""
    row = await fetch_one(
        tx,
        "SELECT count(*), count(v.row) FROM memories m "
        "LEFT JOIN vectors v ON v.user_id = m.user_id AND v.model = :model AND v.row = m.row",
        {"model": await model_number(tx, model) or 0},
    )
    total, done = row or (0, 0)
    return EmbeddingProgress(done, total)
