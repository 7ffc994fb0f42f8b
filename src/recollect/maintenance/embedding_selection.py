"""Choose the embedding model: the one that the ledger searches, until all vectors of the configured one exist.

The ledger decides, not the settings of a process, so that processes with old and new settings search the same model.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from urllib.parse import urlsplit, urlunsplit

from recollect.config.settings import Settings
from recollect.errors import MissingExtra, RecollectError, Unavailable
from recollect.frozen_dataclass import frozen_dataclass
from recollect.ledger.ledger import Ledger
from recollect.ledger.types import ModelOrigin, ModelState, current_model_state, find_model_state
from recollect.maintenance.embedding_migration import EmbeddingMigration, TargetModel
from recollect.models.embedding import Embedder, EmbeddingModel

_log = logging.getLogger("recollect")
# The model of a ledger that is opened without an embedder.
_NO_MODEL = EmbeddingModel("none", 1)
# Settings for models of ledgers that did not record them.
_OWN_SPECS = {"recollect-static-1": "bundled", "bge-small-en-int8": "neural"}
_HUBS = ("model2vec:", "sentence-transformers:", "fastembed:")


@frozen_dataclass
class Openers:
    """Functions that open the embedder and the ledger of settings."""

    embedder: Callable[[Settings], Awaitable[Embedder]]
    ledger: Callable[[Settings, EmbeddingModel], Awaitable[Ledger]]


@frozen_dataclass
class SelectedEmbedder:
    """An open ledger, the embedder of its vectors, and the migration to run in the background."""

    ledger: Ledger
    embedder: Embedder
    migration: EmbeddingMigration


@frozen_dataclass
class _ConfiguredEmbedder:
    """The embedder of the settings, or the error of opening it."""

    origin: ModelOrigin
    embedder: Embedder | None
    error: RecollectError | None = None


async def select_embedder(settings: Settings, override: Embedder | None, openers: Openers) -> SelectedEmbedder:
    """Open the ledger and its embedder; `override` replaces the embedder of the settings."""
    configured = await _open_configured(settings, override, openers)
    async with AsyncExitStack() as opened:
        if configured.embedder is not None:
            opened.push_async_callback(configured.embedder.close)
        ledger = await openers.ledger(
            settings, _NO_MODEL if configured.embedder is None else configured.embedder.model
        )
        opened.push_async_callback(ledger.close)
        selected = await _select(settings, configured, ledger, openers)
        opened.pop_all()
    return selected


async def _open_configured(settings: Settings, override: Embedder | None, openers: Openers) -> _ConfiguredEmbedder:
    if override is not None:
        return _ConfiguredEmbedder(ModelOrigin(), override)
    origin = origin_of(settings)
    try:
        return _ConfiguredEmbedder(origin, await openers.embedder(settings))
    except (Unavailable, MissingExtra) as error:
        return _ConfiguredEmbedder(origin, None, error)


async def _select(
    settings: Settings, configured: _ConfiguredEmbedder, ledger: Ledger, openers: Openers
) -> SelectedEmbedder:
    states = await ledger.model_states()
    searched, embedder = current_model_state(states), configured.embedder
    if embedder is None:
        return await _select_previous(settings, configured, ledger, searched, openers)
    if searched is None or searched.model == embedder.model or await _can_switch(ledger, embedder.model, states):
        before = searched.model if searched else None
        origin = configured.origin
        if searched is None or searched.model != embedder.model or (origin.spec and origin != searched.origin):
            searched = await ledger.make_current(embedder.model, configured.origin, replacing=before)
        if searched.model == embedder.model:
            return SelectedEmbedder(ledger, embedder, EmbeddingMigration(ledger, searched, serving=embedder))
    state = find_model_state(states, embedder.model)
    was_retired = state is not None and state.retired_at is not None
    previous = await _open_searched(settings, searched, openers)
    _log_selection(embedder.model, searched.model, is_served=previous is not None, was_retired=was_retired)
    target = TargetModel(configured.origin, embedder, was_retired=was_retired)
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
    settings: Settings, configured: _ConfiguredEmbedder, ledger: Ledger, searched: ModelState | None, openers: Openers
) -> SelectedEmbedder:
    """Serve with the previous embedder while that of the settings is unavailable."""
    assert configured.error is not None
    if searched is None or searched.origin.spec == configured.origin.spec:
        raise configured.error
    previous = await _open_searched(settings, searched, openers)
    if previous is None:
        raise configured.error
    _log.warning("%s is still searched: %s", searched.model, configured.error)
    target = TargetModel(configured.origin, open=lambda: openers.embedder(settings))
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
