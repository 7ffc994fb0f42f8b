"""Bring a ledger to another embedding model while the one before goes on being searched; then switch, once.

The new vectors are made behind, by one process at a time, in small batches with rests between them; whoever takes
over goes on where that one was. Once nothing lacks a vector the ledger is told to search the new model, and every
process that serves it opens a new service.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from time import monotonic

from recollect.errors import RecollectError
from recollect.ledger.model_states import Embedded, ModelState, Origin, current_of, state_of
from recollect.ledger.protocol import Ledger
from recollect.model.background import BackgroundTask
from recollect.model.faults import traced_fault
from recollect.model.ids import new_id
from recollect.model.times import now
from recollect.models.embedding import Embedder, EmbeddingModel
from recollect.observe.metrics import MODEL_CHANGE
from recollect.upkeep.reembed import BATCH, drop_replaced, embed_missing

_log = logging.getLogger("recollect")
# Whoever is killed is followed by another after so long.
LEASE_S = 10.0
_RENEW_S = 2.0
_TELL_S = 10.0
_LOOK_S = 1.0
_FIRST_WAIT_S, _MOST_WAIT_S = 1.0, 60.0
# A batch holds the interpreter and the ledger's writer for a few milliseconds; recalls wait for no more than that.
_POLITE_BATCH = 64
_POLITE_REST = 1.0
# While others go on writing there is always a memory without a vector; so few can be left to the catching up.
_ENOUGH = 64
# Every process has noticed a switch by then.
_NOTICED_S = 3.0
# What processes wrote that had not yet noticed the switch gets its vectors so long after it.
_CATCH_UP_S = (0.2, 1.0, 3.0, 10.0, 30.0, 120.0)
_CATCH_UP_FOR = timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class Coming:
    """The model that the settings name where the ledger searches another: open, or how it is opened.

    One that `was_retired` is only gone back to if someone says so.
    """

    origin: Origin
    embedder: Embedder | None = None
    open: Callable[[], Awaitable[Embedder]] | None = None
    was_retired: bool = False


class ModelChange:
    """What a service has to do with a change of model: it makes the vectors behind, and knows when the ledger moved.

    `searched` is the model that the ledger searched when the service was opened.
    """

    def __init__(
        self, ledger: Ledger, searched: ModelState, *, serving: Embedder, coming: Coming | None = None
    ) -> None:
        self._ledger = ledger
        self._searched = searched
        self._serving = serving
        self._coming = coming
        self._embedder = coming.embedder if coming else None
        self._who = f"{socket.gethostname()}:{os.getpid()}:{new_id()[-6:]}"
        self._so_far: Embedded | None = None
        self._changing = BackgroundTask(self._go_on)
        # Set when the switch was made here, so that nobody need wait for the next look.
        self.moved = asyncio.Event()

    @property
    def searched(self) -> EmbeddingModel:
        """The model that the ledger searched when the service was opened."""
        return self._searched.model

    @property
    def is_under_way(self) -> bool:
        """Whether the settings name a model that the ledger is to be brought to."""
        return self._coming is not None and not self._coming.was_retired

    async def has_moved(self) -> bool:
        """Whether the ledger searches another model than it did when the service was opened."""
        return _has_moved(await self._ledger.model_states(), self._searched.model)

    def start(self) -> None:
        """Begin to make vectors behind, if there are any to make."""
        if not self._changing.was_begun:
            self._changing.start()

    async def stop(self) -> None:
        """Leave the rest to another, and let go of the model that was to come."""
        await self._changing.stop()
        if self._embedder is not None and self._embedder is not self._serving:
            await self._embedder.close()
            self._embedder = None

    async def bring_in(self, progress: Callable[[int], None], *, back: bool = False, drop: bool = False) -> int:
        """Make all vectors now, of the model that the settings name, and switch to it; gives how many were made.

        One that was searched before is only gone `back` to if that is said. While another process does the same,
        this waits for it, and goes on if it stops. With `drop` the vectors of models before are removed.
        """
        done = 0
        if self._coming is None or (self._coming.was_retired and not back):
            done = await embed_missing(ledger=self._ledger, embedder=self._serving, progress=progress)
        else:
            embedder = await self._open(self._coming)
            if await self._hold(embedder.model, self._coming.origin):
                done = await self._embed_and_switch(embedder, self._coming.origin, progress=progress)
            if drop:
                await asyncio.sleep(_NOTICED_S)
        if drop:
            await drop_replaced(self._ledger)
        return done

    async def _go_on(self) -> None:
        """Do what there is to do behind, whatever is away meanwhile."""
        wait_s = _FIRST_WAIT_S
        while True:
            try:
                await (self._change() if self.is_under_way else self._catch_up())
                return
            except RecollectError as error:
                _log.warning("the change of the embedding model waits: %s", error)
            except Exception as error:
                _log.error("the change of the embedding model failed, and is tried again. %s", traced_fault(error))
            await asyncio.sleep(wait_s)
            wait_s = min(wait_s * 2, _MOST_WAIT_S)

    async def _change(self) -> None:
        coming = self._coming
        assert coming is not None
        embedder = await self._open(coming)
        known = state_of(await self._ledger.model_states(), embedder.model)
        if known is not None and (known.is_current or known.retired_at is not None):
            # Only now that it is open can be told that it was searched before.
            return
        if await self._hold(embedder.model, coming.origin):
            await self._embed_and_switch(embedder, coming.origin, polite=True)

    async def _hold(self, model: EmbeddingModel, origin: Origin) -> bool:
        """Wait until this is the one to make the vectors; False if it is all done by another."""
        while True:
            states = await self._ledger.model_states()
            if _has_moved(states, self._searched.model):
                return False
            state = state_of(states, model)
            if state is None or not state.is_held:
                if await self._ledger.hold_model(model, origin, who=self._who, for_s=LEASE_S):
                    return True
            else:
                self._note(Embedded(state.embedded, state.to_embed))
            await asyncio.sleep(_LOOK_S)

    async def _embed_and_switch(
        self,
        embedder: Embedder,
        origin: Origin,
        *,
        progress: Callable[[int], None] = lambda done: None,
        polite: bool = False,
    ) -> int:
        model = embedder.model
        async with self._held(model, origin):
            begun = await self._ledger.count_embedded(model)
            _log.info("embedding with %s: %d of %d memories have vectors of it", model, begun.done, begun.total)
            told_at = monotonic()

            def tell(done: int) -> None:
                nonlocal told_at
                so_far = Embedded(begun.done + done, max(begun.total, begun.done + done))
                self._note(so_far)
                if monotonic() - told_at >= _TELL_S:
                    told_at = monotonic()
                    _log.info("embedding with %s: %d of %d", model, so_far.done, so_far.total)
                progress(done)

            self._note(begun)
            done = await embed_missing(
                ledger=self._ledger,
                embedder=embedder,
                progress=tell,
                batch_size=_POLITE_BATCH if polite else BATCH,
                rest=_POLITE_REST if polite else 0.0,
                enough=_ENOUGH,
            )
            current = await self._ledger.make_current(model, origin, instead_of=self._searched.model)
        self._note(None)
        if current.model == model:
            _log.info("memories are now searched by %s instead of %s", model, self._searched.model)
            self.moved.set()
        return done

    async def _catch_up(self) -> None:
        """After a switch, embed what was written by those who had not noticed it yet."""
        since = self._searched.current_at
        if (
            self._searched.model != self._serving.model
            or since is None
            or not timedelta() <= now() - since < _CATCH_UP_FOR
        ):
            return
        for after_s in _CATCH_UP_S:
            await asyncio.sleep(max(0.0, after_s - (now() - since).total_seconds()))
            origin = self._searched.origin
            if await self._ledger.hold_model(self._serving.model, origin, who=self._who, for_s=LEASE_S):
                async with self._held(self._serving.model, origin):
                    await embed_missing(
                        ledger=self._ledger,
                        embedder=self._serving,
                        batch_size=_POLITE_BATCH,
                        rest=_POLITE_REST,
                        enough=_ENOUGH,
                    )

    @asynccontextmanager
    async def _held(self, model: EmbeddingModel, origin: Origin) -> AsyncIterator[None]:
        """Keep the lease that was taken, telling how far it is, as long as this lasts."""
        keeping = BackgroundTask(lambda: self._keep(model, origin))
        keeping.start()
        try:
            yield
        finally:
            await keeping.stop()
            with suppress(RecollectError):
                await self._ledger.hold_model(model, origin, who=self._who, for_s=0, so_far=self._so_far)

    async def _keep(self, model: EmbeddingModel, origin: Origin) -> None:
        while True:
            try:
                await self._ledger.hold_model(model, origin, who=self._who, for_s=LEASE_S, so_far=self._so_far)
            except RecollectError as error:
                # If it runs out, two do the same for a while: that costs time, and harms nothing.
                _log.warning("the lease on the vectors of %s could not be renewed: %s", model, error)
            await asyncio.sleep(_RENEW_S)

    def _note(self, so_far: Embedded | None) -> None:
        self._so_far = so_far or self._so_far
        MODEL_CHANGE.set(so_far.done if so_far else 0, "done")
        MODEL_CHANGE.set(so_far.total if so_far else 0, "total")

    async def _open(self, coming: Coming) -> Embedder:
        if self._embedder is None:
            assert coming.open is not None
            self._embedder = await coming.open()
        return self._embedder


def _has_moved(states: list[ModelState], searched: EmbeddingModel) -> bool:
    current = current_of(states)
    return current is not None and current.model != searched
