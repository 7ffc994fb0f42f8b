"""Give every memory a vector of the current model: after a change of model, or while the embedder was away."""

from __future__ import annotations

from collections.abc import Callable

from recollect.ledger.protocol import Ledger, Unembedded
from recollect.models.embedding import Embedder

BATCH = 256


async def reembed(*, ledger: Ledger, embedder: Embedder, progress: Callable[[int], None] = lambda done: None) -> int:
    """Embed what lacks a vector, then remove the vectors of other models; can be broken off and run again."""
    done = after = 0
    while True:
        batch = await ledger.unembedded(embedder.model, limit=BATCH, after=after)
        if not batch and not after:
            break
        vectors = await embedder.embed([each.content for each in batch], role="passage")
        for user, rows in _by_user(batch).items():
            wanted = {batch[at].row: vectors[at] for at in rows}
            await ledger.embed(embedder.model, wanted, user=user)
        # At the end it looks once more from the start: a row may have been committed behind our back.
        after, done = batch[-1].row if batch else 0, done + len(batch)
        progress(done)
    for model in await ledger.models():
        if model != embedder.model:
            await ledger.drop_model(model)
    return done


def _by_user(batch: list[Unembedded]) -> dict[str, list[int]]:
    users: dict[str, list[int]] = {}
    for at, each in enumerate(batch):
        users.setdefault(each.user, []).append(at)
    return users
