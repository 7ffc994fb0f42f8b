"""Embed memories without a vector: after a change of the model, or after the embedder was unavailable."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from datetime import datetime
from itertools import groupby
from time import perf_counter

from recollect.errors import RecollectError
from recollect.ledger.ledger import Ledger
from recollect.ledger.types import Unembedded
from recollect.model.change import Vector
from recollect.model.ids import new_id
from recollect.model.times import now
from recollect.models.embedding import Embedder, EmbeddingModel

_log = logging.getLogger("recollect")
BATCH = 256
# Concurrent transactions share a sync to disk; more of them would occupy the connections of others.
_USERS_AT_ONCE = 8


async def embed_missing(
    *,
    ledger: Ledger,
    embedder: Embedder,
    user: str | None = None,
    progress: Callable[[int], None] = lambda done: None,
    batch_size: int = BATCH,
    pause_ratio: float = 0.0,
    max_remaining: int = 0,
) -> int:
    """Embed memories without a vector, of one user or of all, and return how many were embedded.

    It can be interrupted and started again. Since others may go on writing, it scans until a pass embeds at most
    `max_remaining`. In the first pass it pauses after each batch for `pause_ratio` times the batch's duration. A text
    that the embedder refuses stays without a vector, and is found by its words.
    """
    done = after = fresh = 0
    refused: set[int] = set()
    while True:
        started = perf_counter()
        batch = await ledger.unembedded(embedder.model, limit=batch_size, after=after, user=user)
        pending = [each for each in batch if each.row not in refused]
        if pending:
            vectors = await _embed_batch(pending, embedder)
            refused |= {each.row for each in pending} - vectors.keys()
            await _store_vectors(ledger, embedder.model, [each for each in pending if each.row in vectors], vectors)
            fresh, done = fresh + len(vectors), done + len(vectors)
            progress(done)
        if len(batch) == batch_size or (batch and not max_remaining):
            after = batch[-1].row
            await asyncio.sleep((perf_counter() - started) * pause_ratio)
        elif fresh <= max_remaining:
            return done
        else:
            # Scan once more from the start: rows with lower numbers may have been committed since.
            after, fresh, pause_ratio = 0, 0, 0.0


async def drop_old_vectors(ledger: Ledger, *, before: datetime | None = None) -> None:
    """Remove the vectors of models that were replaced or abandoned, all or only those before a time.

    A migration is abandoned if its lease has run out.
    """
    moments = await ledger.maintenance_times()
    for state in await ledger.model_states():
        since = state.retired_at or state.lease_expires_at
        if state.is_current or state.is_leased or since is None or (before is not None and since > before):
            continue
        moment_name = f"vectors dropped: {state.model}"
        if moment_name in moments and moments[moment_name] >= since:
            continue
        await ledger.drop_model(state.model)
        await ledger.record_maintenance_times({moment_name: now()})
        _log.info("dropped the vectors of %s, which is no longer searched", state.model)


async def _store_vectors(
    ledger: Ledger, model: EmbeddingModel, batch: Sequence[Unembedded], vectors: dict[int, Vector]
) -> None:
    by_user = [
        list(group) for _, group in groupby(sorted(batch, key=lambda each: each.user), key=lambda each: each.user)
    ]
    for start in range(0, len(by_user), _USERS_AT_ONCE):
        await asyncio.gather(
            *(
                ledger.embed(
                    model,
                    {each.row: vectors[each.row] for each in own},
                    user=own[0].user,
                    versions={each.row: each.version for each in own},
                )
                for own in by_user[start : start + _USERS_AT_ONCE]
            )
        )


async def _embed_batch(batch: Sequence[Unembedded], embedder: Embedder) -> dict[int, Vector]:
    """Return a vector for each row except for texts that the embedder refuses while it accepts others."""
    try:
        rows = await embedder.embed([each.content for each in batch], role="passage")
        return {each.row: vector for each, vector in zip(batch, rows, strict=True)}
    except RecollectError as error:
        # A text that no cache can answer. If this fails too, the embedder is unavailable, and that error is raised.
        await embedder.embed([f"Does it answer? {new_id()}"], role="passage")
        if len(batch) == 1:
            _log.warning("memory row %d stays without a vector of %s: %s", batch[0].row, embedder.model, error)
            return {}
    half = len(batch) // 2
    return await _embed_batch(batch[:half], embedder) | await _embed_batch(batch[half:], embedder)
