"""Give every memory a vector of a model: for a change of model, or after the embedder was away."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from datetime import datetime
from itertools import groupby
from time import perf_counter
from typing import TYPE_CHECKING

from recollect.errors import RecollectError
from recollect.ledger.protocol import Ledger, Unembedded
from recollect.model.ids import new_id
from recollect.model.times import now
from recollect.models.embedding import Embedder, EmbeddingModel

if TYPE_CHECKING:
    from recollect.model.change import Vector


_log = logging.getLogger("recollect")
BATCH = 256
# Transactions that come together share a sync to disk; more of them would keep others from their connections.
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
    """Embed what lacks a vector, of one user or of all; gives how many memories that were.

    It can be broken off and begun again. It goes over everything until it has found no more than `enough` to do,
    for others may go on writing. At first it rests after each batch for so many times as long as that took. A text
    that the embedder refuses by itself is left without a vector, and found by its words.
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
            # It looks once more from the start: a row may have been committed behind our back.
            after, fresh, pause_ratio = 0, 0, 0.0


async def drop_old_vectors(ledger: Ledger, *, before: datetime | None = None) -> None:
    """Remove the vectors of models that another took the place of, or that were given up on, before a time or at all.

    Those of models that were never more than begun are given up on when nobody goes on with them.
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
        _log.info("the vectors of %s are dropped: another model is searched", state.model)


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
    """A vector for each row, but for texts that the embedder refuses while it answers to others."""
    try:
        rows = await embedder.embed([each.content for each in batch], role="passage")
        return {each.row: vector for each, vector in zip(batch, rows, strict=True)}
    except RecollectError as error:
        # Not a text that a cache could answer. If this fails too, the embedder is away, and that is the error.
        await embedder.embed([f"Does it answer? {new_id()}"], role="passage")
        if len(batch) == 1:
            _log.warning("memory row %d stays without a vector of %s: %s", batch[0].row, embedder.model, error)
            return {}
    half = len(batch) // 2
    return await _embed_batch(batch[:half], embedder) | await _embed_batch(batch[half:], embedder)
