"""Late interaction: how well each word piece of a question is matched by the pieces of a candidate.

Token vectors are made in the background after each write and stored in the ledger beside the dense vectors, as those
of a model of their own. What was just written and has none yet is encoded when a search needs it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import simsimd

from recollect.errors import RecollectError
from recollect.ledger.ledger import Ledger
from recollect.ledger.tokenizer import STOP_WORDS
from recollect.ledger.types import Revision, Unembedded
from recollect.models.embedding import TOKEN_MODEL
from recollect.models.static_embedder import word_piece_texts
from recollect.models.token_encoder import DIMENSIONS, STEPS, encode_passages, encode_question

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]


_log = logging.getLogger("recollect")
# Encoding starts a moment after a write: it does not compete with the answer, and takes several writes at once.
_DELAY_S = 0.5
_BATCH = 64
# A search encodes the newest rows itself, a few at a time, until it has spent this long; each row costs two to five
# milliseconds. The others get an estimate, so that a search stays within the time budget of a chat on a busy machine.
_ON_DEMAND_S = 0.03
_ON_DEMAND_ROWS, _ON_DEMAND_BATCH = 32, 4
# Beyond this, what was encoded for a user is looked up as at the start.
_MAX_USERS = 10_000
# Weaker matches of words explain nothing.
_MIN_DESCRIBED = 0.5


class LateInteraction:
    """Stores token vectors for one ledger and compares questions with them."""

    def __init__(self, ledger: Ledger, *, on_demand_s: float = _ON_DEMAND_S) -> None:
        self._ledger, self._on_demand_s = ledger, on_demand_s
        self._pending: dict[str, None] = {}
        self._task: asyncio.Task[None] | None = None
        # The revision of users up to which everything is encoded.
        self._encoded: dict[str, Revision] = {}
        self._lock = asyncio.Lock()
        self._lock_loop: asyncio.AbstractEventLoop | None = None

    async def best_matches(self, user: str, question: str, rows: NDArray[np.int64]) -> Floats:
        """Return the best cosine for each candidate row and each piece of the question; NaN where none is stored."""
        # As a piece, the mark that joins the words of a name would match every such name.
        pieces = encode_question(question.replace("_", " "))
        matches = np.full((len(rows), len(pieces)), np.nan, np.float32)
        stored = await self._ledger.token_vectors(user, rows.tolist())
        missing = [row for row in rows.tolist() if row not in stored]
        if missing:
            stored |= await self._encode_missing(user, missing[-_ON_DEMAND_ROWS:])
            self.schedule(user)
        at = [index for index, row in enumerate(rows.tolist()) if stored.get(row)]
        if at:
            matches[at] = max_similarities(pieces, [stored[int(rows[index])] for index in at])
        return matches

    def schedule(self, user: str) -> None:
        """Encode what the user has without token vectors, in the background."""
        self._pending[user] = None
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return
        if self._task is None or self._task.done() or self._task.get_loop() is not loop:
            self._task = loop.create_task(self._run())

    async def flush(self, user: str) -> int:
        """Encode and store what the user has without token vectors; return how many memories that were."""
        self._pending.pop(user, None)
        count = 0
        if self._lock_loop is not asyncio.get_running_loop():
            # A lock belongs to the event loop it was first waited for in.
            self._lock, self._lock_loop = asyncio.Lock(), asyncio.get_running_loop()
        async with self._lock:
            current, encoded = await self._ledger.revision(user), self._encoded.get(user, Revision())
            after = encoded.number if encoded.epoch == current.epoch else 0
            while batch := await self._ledger.unembedded(TOKEN_MODEL, limit=_BATCH, user=user, changed_after=after):
                vectors = await asyncio.to_thread(_encode_rows, batch)
                versions = {each.row: each.version for each in batch}
                await self._ledger.store_token_vectors(TOKEN_MODEL, vectors, user=user, versions=versions)
                count += len(batch)
                if len(batch) < _BATCH:
                    break
            if len(self._encoded) >= _MAX_USERS:
                self._encoded.clear()
            self._encoded[user] = current
        return count

    async def close(self) -> None:
        """Stop encoding; what is left is encoded when it is next searched."""
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._task = None

    async def _run(self) -> None:
        await asyncio.sleep(_DELAY_S)
        while self._pending:
            try:
                await self.flush(next(iter(self._pending)))
            except RecollectError as error:
                _log.warning("Token vectors could not be stored; they are made when next needed: %s", error)
                self._pending.clear()

    async def _encode_missing(self, user: str, rows: Sequence[int]) -> dict[int, bytes]:
        batch = await self._ledger.unembedded(TOKEN_MODEL, limit=len(rows), user=user, rows=rows)
        return await asyncio.to_thread(_encode_newest, batch, self._on_demand_s) if batch else {}


def max_similarities(pieces: Floats, passages: Sequence[bytes]) -> Floats:
    """Return the best cosine of each question piece in each passage: one row a passage."""
    joined = np.frombuffer(b"".join(passages), np.int8).reshape(-1, DIMENSIONS)
    ends = np.cumsum([len(passage) // DIMENSIONS for passage in passages])
    steps = np.rint(pieces * STEPS).astype(np.int8)
    products = np.asarray(simsimd.cdist(steps, joined, "dot", out_dtype="float32"))
    best = np.maximum.reduceat(products, np.concatenate(([0], ends[:-1])), axis=1)
    return np.asarray(best.T / np.float32(STEPS * STEPS), np.float32)


def describe_matches(question: str, passage: str, *, limit: int = 2) -> list[str]:
    """Say which words of the question match which other words of the passage best."""
    question_words, passage_words = word_piece_texts(question), word_piece_texts(passage)
    [vectors] = encode_passages([passage])
    similar = encode_question(question) @ vectors.T.astype(np.float32) / STEPS
    matches = []
    for word, row in zip(question_words, similar, strict=False):
        at = int(row.argmax())
        other = passage_words[at]
        if row[at] >= _MIN_DESCRIBED and word != other and not {word, other} & STOP_WORDS and word.isalpha():
            matches.append((float(row[at]), f"'{word}' matches '{other}' {row[at]:.2f}"))
    return [text for _, text in sorted(matches, reverse=True)[:limit] if "##" not in text]


def _encode_rows(batch: Sequence[Unembedded]) -> dict[int, bytes]:
    texts = [f"{each.speaker}: {each.content}" if each.speaker else each.content for each in batch]
    return {each.row: own.tobytes() for each, own in zip(batch, encode_passages(texts), strict=True)}


def _encode_newest(batch: Sequence[Unembedded], max_s: float) -> dict[int, bytes]:
    """Encode the last rows of a batch first, and stop once the time is spent."""
    deadline = time.monotonic() + max_s
    encoded: dict[int, bytes] = {}
    for end in range(len(batch), 0, -_ON_DEMAND_BATCH):
        encoded |= _encode_rows(batch[max(end - _ON_DEMAND_BATCH, 0) : end])
        if time.monotonic() >= deadline:
            break
    return encoded
