"""Migrate a ledger to another embedding model while the previous one is still searched; then switch once.

One process at a time makes the new vectors in the background, in small batches with pauses; another continues if it
stops. Once no memory lacks a vector the ledger switches to the new model, and every process opens a new service.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby
from time import monotonic, perf_counter
from urllib.parse import urlsplit, urlunsplit

from recollect.aio.background import BackgroundTask
from recollect.config.settings import Settings
from recollect.errors import MissingExtra, RecollectError, Unavailable
from recollect.ledger.ledger import Ledger
from recollect.ledger.types import (
    EmbeddingProgress,
    ModelOrigin,
    ModelState,
    Unembedded,
    current_model_state,
    find_model_state,
)
from recollect.model.change import Vector
from recollect.model.ids import new_id, new_worker_name
from recollect.model.times import now
from recollect.models.embedding import Embedder, EmbeddingModel
from recollect.observability.metrics import MODEL_CHANGE
from recollect.observability.tracing import format_traceback

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


_log = logging.getLogger("recollect")
# Another process takes over from one that was killed after this time.
LEASE_S = 10.0
_RENEW_S = 2.0
_LOG_EVERY_S = 10.0
_POLL_S = 1.0
FIRST_WAIT_S, _MAX_WAIT_S = 1.0, 60.0
# A batch occupies the interpreter and the ledger's writer for a few milliseconds, which recalls wait for.
BACKGROUND_BATCH = 64
_BACKGROUND_PAUSE_RATIO = 1.0
# While others write there is always a memory without a vector; this many are left to the catch-up after the switch.
_MAX_REMAINING = 64
# Every process notices a switch within this time.
SWITCH_DELAY_S = 3.0
# When, after a switch, to embed the writes of processes that had not noticed it yet.
_CATCH_UP_S = (0.2, 1.0, 3.0, 10.0, 30.0, 120.0)
_CATCH_UP_FOR = timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class TargetModel:
    """The model of the settings where the ledger searches another; `open` opens it if it is not open yet.

    A model that `was_retired` is used again only on request.
    """

    origin: ModelOrigin
    embedder: Embedder | None = None
    open: Callable[[], Awaitable[Embedder]] | None = None
    was_retired: bool = False


class EmbeddingMigration:
    """Make the vectors of a new model in the background, and detect that the ledger has switched.

    `searched` is the model that the ledger searched when the service was opened.
    """

    def __init__(
        self, ledger: Ledger, searched: ModelState, *, serving: Embedder, target: TargetModel | None = None
    ) -> None:
        self._ledger = ledger
        self._searched = searched
        self._serving = serving
        self._target = target
        self._embedder = target.embedder if target else None
        self._worker_name = new_worker_name()
        self._progress: EmbeddingProgress | None = None
        self._task = BackgroundTask(self._run_in_background)
        # Set when this process made the switch, so that nobody waits for the next poll.
        self.moved = asyncio.Event()

    async def has_moved(self) -> bool:
        """Return whether the ledger searches another model than when the service was opened."""
        return _has_moved(await self._ledger.model_states(), self._searched.model)

    def start(self) -> None:
        """Start to make missing vectors in the background."""
        if not self._task.was_started:
            self._task.start()

    async def stop(self) -> None:
        """Stop, and close the new model; another process may continue."""
        await self._task.stop()
        if self._embedder is not None and self._embedder is not self._serving:
            await self._embedder.close()
            self._embedder = None

    async def migrate(
        self, progress: Callable[[int], None], *, allow_retired: bool = False, drop: bool = False
    ) -> int:
        """Make all vectors of the model of the settings now, switch to it, and return how many were made.

        A retired model is used only if `allow_retired` is set. While another process migrates, wait for it, and
        continue if it stops. With `drop` the vectors of previous models are removed.
        """
        done = 0
        if self._target is None or (self._target.was_retired and not allow_retired):
            done = await embed_missing(ledger=self._ledger, embedder=self._serving, progress=progress)
        else:
            embedder = await self._open(self._target)
            if await self._acquire_lease(embedder.model, self._target.origin):
                done = await self._embed_and_switch(embedder, self._target.origin, progress=progress)
            if drop:
                await asyncio.sleep(SWITCH_DELAY_S)
        if drop:
            await drop_old_vectors(self._ledger)
        return done

    async def _run_in_background(self) -> None:
        wait_s = FIRST_WAIT_S
        while True:
            try:
                is_wanted = self._target is not None and not self._target.was_retired
                await (self._migrate_in_background() if is_wanted else self._catch_up())
                return
            except RecollectError as error:
                _log.warning("the embedding migration is delayed: %s", error)
            except Exception as error:
                _log.error("the embedding migration failed and is retried. %s", format_traceback(error))
            await asyncio.sleep(wait_s)
            wait_s = min(wait_s * 2, _MAX_WAIT_S)

    async def _migrate_in_background(self) -> None:
        target = self._target
        assert target is not None
        embedder = await self._open(target)
        state = find_model_state(await self._ledger.model_states(), embedder.model)
        if state is not None and (state.is_current or state.retired_at is not None):
            # The model is known only after opening the embedder; it may have been searched before.
            return
        if await self._acquire_lease(embedder.model, target.origin):
            await self._embed_and_switch(embedder, target.origin, in_background=True)

    async def _acquire_lease(self, model: EmbeddingModel, origin: ModelOrigin) -> bool:
        """Wait until this process may make the vectors; return False if another has finished."""
        while True:
            states = await self._ledger.model_states()
            if _has_moved(states, self._searched.model):
                return False
            state = find_model_state(states, model)
            if state is None or not state.is_leased:
                if await self._ledger.lease_model(model, origin, owner=self._worker_name, lease_s=LEASE_S):
                    return True
            else:
                self._report_progress(EmbeddingProgress(state.embedded, state.to_embed))
            await asyncio.sleep(_POLL_S)

    async def _embed_and_switch(
        self,
        embedder: Embedder,
        origin: ModelOrigin,
        *,
        progress: Callable[[int], None] = lambda done: None,
        in_background: bool = False,
    ) -> int:
        model = embedder.model
        async with self._lease(model, origin):
            initial = await self._ledger.count_embedded(model)
            _log.info("embedding with %s: %d of %d memories are done", model, initial.done, initial.total)
            logged_at = monotonic()

            def tell(done: int) -> None:
                nonlocal logged_at
                status = EmbeddingProgress(initial.done + done, max(initial.total, initial.done + done))
                self._report_progress(status)
                if monotonic() - logged_at >= _LOG_EVERY_S:
                    logged_at = monotonic()
                    _log.info("embedding with %s: %d of %d", model, status.done, status.total)
                progress(done)

            self._report_progress(initial)
            done = await embed_missing(
                ledger=self._ledger,
                embedder=embedder,
                progress=tell,
                batch_size=BACKGROUND_BATCH if in_background else BATCH,
                pause_ratio=_BACKGROUND_PAUSE_RATIO if in_background else 0.0,
                max_remaining=_MAX_REMAINING,
            )
            current = await self._ledger.make_current(model, origin, replacing=self._searched.model)
        self._report_progress(None)
        if current.model == model:
            _log.info("memories are now searched by %s instead of %s", model, self._searched.model)
            self.moved.set()
        return done

    async def _catch_up(self) -> None:
        """After a switch, embed the writes of processes that had not noticed it yet."""
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
            if await self._ledger.lease_model(self._serving.model, origin, owner=self._worker_name, lease_s=LEASE_S):
                async with self._lease(self._serving.model, origin):
                    await embed_missing(
                        ledger=self._ledger,
                        embedder=self._serving,
                        batch_size=BACKGROUND_BATCH,
                        pause_ratio=_BACKGROUND_PAUSE_RATIO,
                        max_remaining=_MAX_REMAINING,
                    )

    @asynccontextmanager
    async def _lease(self, model: EmbeddingModel, origin: ModelOrigin) -> AsyncIterator[None]:
        """Renew the lease and report progress during the block, then release it."""
        renewal = BackgroundTask(lambda: self._renew_lease(model, origin))
        renewal.start()
        try:
            yield
        finally:
            await renewal.stop()
            with suppress(RecollectError):
                await self._ledger.lease_model(
                    model, origin, owner=self._worker_name, lease_s=0, progress=self._progress
                )

    async def _renew_lease(self, model: EmbeddingModel, origin: ModelOrigin) -> None:
        while True:
            try:
                await self._ledger.lease_model(
                    model, origin, owner=self._worker_name, lease_s=LEASE_S, progress=self._progress
                )
            except RecollectError as error:
                # If it runs out, two processes do the same for a while, which only costs time.
                _log.warning("the lease on the vectors of %s could not be renewed: %s", model, error)
            await asyncio.sleep(_RENEW_S)

    def _report_progress(self, status: EmbeddingProgress | None) -> None:
        self._progress = status or self._progress
        MODEL_CHANGE.set(status.done if status else 0, "done")
        MODEL_CHANGE.set(status.total if status else 0, "total")

    async def _open(self, target: TargetModel) -> Embedder:
        if self._embedder is None:
            assert target.open is not None
            self._embedder = await target.open()
        return self._embedder


def _has_moved(states: list[ModelState], searched: EmbeddingModel) -> bool:
    current = current_model_state(states)
    return current is not None and current.model != searched


# The model of a ledger that is opened without an embedder.
_NO_MODEL = EmbeddingModel("none", 1)
# Settings for models of ledgers that did not record them.
_OWN_SPECS = {"recollect-static-1": "bundled", "bge-small-en-int8": "neural"}
_HUBS = ("model2vec:", "sentence-transformers:", "fastembed:")


@dataclass(frozen=True, slots=True)
class Openers:
    """Functions that open the embedder and the ledger of settings."""

    embedder: Callable[[Settings], Awaitable[Embedder]]
    ledger: Callable[[Settings, EmbeddingModel], Awaitable[Ledger]]


@dataclass(frozen=True, slots=True)
class SelectedEmbedder:
    """An open ledger, the embedder of its vectors, and the migration to run in the background."""

    ledger: Ledger
    embedder: Embedder
    migration: EmbeddingMigration


async def select_embedder(settings: Settings, override: Embedder | None, openers: Openers) -> SelectedEmbedder:
    """Open the ledger and its embedder; `override` replaces the embedder of the settings."""
    origin, embedder, unavailable = origin_of(settings) if override is None else ModelOrigin(), override, None
    if embedder is None:
        try:
            embedder = await openers.embedder(settings)
        except (Unavailable, MissingExtra) as error:
            unavailable = error
    async with AsyncExitStack() as opened:
        if embedder is not None:
            opened.push_async_callback(embedder.close)
        ledger = await openers.ledger(settings, _NO_MODEL if embedder is None else embedder.model)
        opened.push_async_callback(ledger.close)
        if embedder is not None:
            selected = await _select(settings, origin, embedder, ledger, openers)
        else:
            assert unavailable is not None
            selected = await _select_previous(settings, origin, unavailable, ledger, openers)
        opened.pop_all()
    return selected


async def _select(
    settings: Settings, origin: ModelOrigin, embedder: Embedder, ledger: Ledger, openers: Openers
) -> SelectedEmbedder:
    states = await ledger.model_states()
    searched = current_model_state(states)
    if searched is None or searched.model == embedder.model or await _can_switch(ledger, embedder.model, states):
        before = searched.model if searched else None
        if searched is None or searched.model != embedder.model or (origin.spec and origin != searched.origin):
            searched = await ledger.make_current(embedder.model, origin, replacing=before)
        if searched.model == embedder.model:
            return SelectedEmbedder(ledger, embedder, EmbeddingMigration(ledger, searched, serving=embedder))
    state = find_model_state(states, embedder.model)
    was_retired = state is not None and state.retired_at is not None
    previous = await _open_searched(settings, searched, openers)
    _log_selection(embedder.model, searched.model, is_served=previous is not None, was_retired=was_retired)
    target = TargetModel(origin, embedder, was_retired=was_retired)
    if previous is None:
        return SelectedEmbedder(
            ledger, embedder, EmbeddingMigration(ledger, searched, serving=embedder, target=target)
        )
    return await _serve_previous(settings, ledger, searched, previous, target, openers)


async def _can_switch(ledger: Ledger, model: EmbeddingModel, states: list[ModelState]) -> bool:
    """Return whether a model that was never searched has a vector of every memory."""
    state = find_model_state(states, model)
    return (state is None or state.retired_at is None) and not await ledger.unembedded(model, limit=1)


async def _select_previous(
    settings: Settings, origin: ModelOrigin, error: RecollectError, ledger: Ledger, openers: Openers
) -> SelectedEmbedder:
    """Serve with the previous embedder while that of the settings is unavailable."""
    searched = current_model_state(await ledger.model_states())
    if searched is None or searched.origin.spec == origin.spec:
        raise error
    previous = await _open_searched(settings, searched, openers)
    if previous is None:
        raise error
    _log.warning("%s is still searched: %s", searched.model, error)
    target = TargetModel(origin, open=lambda: openers.embedder(settings))
    return await _serve_previous(settings, ledger, searched, previous, target, openers)


async def _serve_previous(
    settings: Settings,
    ledger: Ledger,
    searched: ModelState,
    previous: Embedder,
    target: TargetModel,
    openers: Openers,
) -> SelectedEmbedder:
    """Reopen the ledger for the vectors of the previous model."""
    async with AsyncExitStack() as opened:
        opened.push_async_callback(previous.close)
        reopened = await openers.ledger(settings, previous.model)
        opened.pop_all()
    await ledger.close()
    return SelectedEmbedder(
        reopened, previous, EmbeddingMigration(reopened, searched, serving=previous, target=target)
    )


async def _open_searched(settings: Settings, searched: ModelState, openers: Openers) -> Embedder | None:
    """Return the embedder of the model that the ledger searches, or None if these settings cannot open it."""
    model_settings = _settings_for(settings, searched)
    if model_settings is None:
        return None
    try:
        embedder = await openers.embedder(model_settings)
    except RecollectError as error:
        _log.warning("the searched model %s cannot be opened: %s", searched.model, error)
        return None
    if embedder.model != searched.model:
        _log.warning("%s is opened by %r instead of %s", embedder.model, model_settings.embedder, searched.model)
        await embedder.close()
        return None
    return embedder


def origin_of(settings: Settings) -> ModelOrigin:
    """Return how the settings name their embedder, without a key or a password."""
    if not settings.embedder.startswith("openai:"):
        return ModelOrigin(settings.embedder)
    return ModelOrigin(settings.embedder, _without_login(settings.embedder_url), settings.embedder_dimensions)


def _settings_for(settings: Settings, searched: ModelState) -> Settings | None:
    """Return settings for the searched model; None if it was passed as an object.

    The API key of the settings is only sent to their own address.
    """
    origin = searched.origin
    name = searched.model.name
    spec = origin.spec or (name if name.startswith(_HUBS) else _OWN_SPECS.get(name, ""))
    if not spec:
        return None
    url, key = settings.previous_embedder_url, settings.previous_embedder_api_key
    if not url:
        url = origin.url or settings.embedder_url
        if _without_login(settings.embedder_url) == url:
            url = settings.embedder_url
    if not key.get_secret_value() and url == settings.embedder_url:
        key = settings.embedder_api_key
    return settings.model_copy(
        update={
            "embedder": spec,
            "embedder_url": url,
            "embedder_api_key": key,
            "embedder_dimensions": origin.dimensions,
        }
    )


def _without_login(url: str) -> str:
    try:
        parts = urlsplit(url)
        return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
    except ValueError:
        return ""


def _log_selection(
    configured: EmbeddingModel, searched: EmbeddingModel, *, is_served: bool, was_retired: bool
) -> None:
    if was_retired:
        _log.warning(
            "%s of the settings was replaced here by %s, which %s; `recollect reembed --back` goes back to it",
            configured,
            searched,
            "is still searched" if is_served else "cannot be opened",
        )
    elif is_served:
        _log.warning(
            "%s is searched until all memories have vectors of %s: a server or a worker makes them in the "
            "background, `recollect reembed` makes them now",
            searched,
            configured,
        )
    else:
        _log.warning(
            "%s of the existing vectors cannot be opened: memories are found by their words until a server, a "
            "worker or `recollect reembed` has made vectors of %s",
            searched,
            configured,
        )
