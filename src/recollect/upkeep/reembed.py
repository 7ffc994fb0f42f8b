"""Give every memory a vector of the current model: after a change of model, or while the embedder was away."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby

from recollect.ledger.protocol import Ledger
from recollect.models.embedding import Embedder

BATCH = 256


async def reembed(*, ledger: Ledger, embedder: Embedder, progress: Callable[[int], None] = lambda done: None) -> int:
    """Embed what lacks a vector, then remove the vectors of other models; can be broken off and run again."""
    done = await embed_missing(ledger=ledger, embedder=embedder, progress=progress)
    for model in await ledger.models():
        if model != embedder.model:
            await ledger.drop_model(model)
    return done


async def embed_missing(
    *,
    ledger: Ledger,
    embedder: Embedder,
    user: str | None = None,
    progress: Callable[[int], None] = lambda done: None,
) -> int:
    """Embed what lacks a vector, of one user or of all; gives how many memories that were."""
    done = after = 0
    while True:
        batch = await ledger.unembedded(embedder.model, limit=BATCH, after=after, user=user)
        if not batch and not after:
            return done
        vectors = await embedder.embed([each.content for each in batch], role="passage")
        pairs = sorted(zip(batch, vectors, strict=True), key=lambda pair: pair[0].user)
        for owner, group in groupby(pairs, key=lambda pair: pair[0].user):
            own = list(group)
            await ledger.embed(
                embedder.model,
                {each.row: vector for each, vector in own},
                user=owner,
                versions={each.row: each.version for each, _ in own},
            )
        # At the end it looks once more from the start: a row may have been committed behind our back.
        after, done = batch[-1].row if batch else 0, done + len(batch)
        progress(done)
