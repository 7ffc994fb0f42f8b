"""Which embedding model serves: the one the ledger searches, until it has vectors of the one the settings name.

The ledger decides, not the settings of whoever opens it, so that processes with old and new settings search the same.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from urllib.parse import urlsplit, urlunsplit

from recollect.errors import MissingExtra, RecollectError, Unavailable
from recollect.ledger.model_states import ModelState, Origin, current_of, state_of
from recollect.ledger.protocol import Ledger
from recollect.models.embedding import Embedder, EmbeddingModel
from recollect.settings import Settings
from recollect.upkeep.model_change import Coming, ModelChange

_log = logging.getLogger("recollect")
# What a ledger is opened with by who makes no vectors.
_NO_MODEL = EmbeddingModel("none", 1)
# How ledgers that did not put it down can tell how a model was named.
_OWN_SPECS = {"recollect-static-1": "bundled", "bge-small-en-int8": "neural"}
_HUBS = ("model2vec:", "sentence-transformers:", "fastembed:")


@dataclass(frozen=True, slots=True)
class Opens:
    """How the embedder and the ledger that settings name are opened."""

    embedder: Callable[[Settings], Awaitable[Embedder]]
    ledger: Callable[[Settings, EmbeddingModel], Awaitable[Ledger]]


@dataclass(frozen=True, slots=True)
class Chosen:
    """What serves, open: a ledger that keeps vectors of the embedder's model, and what there is to do behind."""

    ledger: Ledger
    embedder: Embedder
    change: ModelChange


@dataclass(frozen=True, slots=True)
class _Wanted:
    """The embedder that the settings name, or why it cannot be had."""

    origin: Origin
    embedder: Embedder | None
    trouble: RecollectError | None = None


async def choose(settings: Settings, given: Embedder | None, opens: Opens) -> Chosen:
    """Open the ledger and the embedder that serves it; a `given` embedder takes the place of that of the settings."""
    wanted = await _wanted(settings, given, opens)
    async with AsyncExitStack() as opened:
        if wanted.embedder is not None:
            opened.push_async_callback(wanted.embedder.close)
        ledger = await opens.ledger(settings, _NO_MODEL if wanted.embedder is None else wanted.embedder.model)
        opened.push_async_callback(ledger.close)
        chosen = await _chosen(settings, wanted, ledger, opens)
        opened.pop_all()
    return chosen


async def _wanted(settings: Settings, given: Embedder | None, opens: Opens) -> _Wanted:
    if given is not None:
        return _Wanted(Origin(), given)
    origin = origin_of(settings)
    try:
        return _Wanted(origin, await opens.embedder(settings))
    except (Unavailable, MissingExtra) as error:
        return _Wanted(origin, None, error)


async def _chosen(settings: Settings, wanted: _Wanted, ledger: Ledger, opens: Opens) -> Chosen:
    states = await ledger.model_states()
    searched, embedder = current_of(states), wanted.embedder
    if embedder is None:
        return await _without_wanted(settings, wanted, ledger, searched, opens)
    if searched is None or searched.model == embedder.model or await _can_switch(ledger, embedder.model, states):
        before = searched.model if searched else None
        if searched is None or searched.model != embedder.model or _is_news(wanted.origin, searched.origin):
            searched = await ledger.make_current(embedder.model, wanted.origin, instead_of=before)
        if searched.model == embedder.model:
            return Chosen(ledger, embedder, ModelChange(ledger, searched, serving=embedder))
    known = state_of(states, embedder.model)
    was_retired = known is not None and known.retired_at is not None
    old = await _open_searched(settings, searched, opens)
    _tell(embedder.model, searched.model, is_served=old is not None, was_retired=was_retired)
    coming = Coming(wanted.origin, embedder, was_retired=was_retired)
    if old is None:
        return Chosen(ledger, embedder, ModelChange(ledger, searched, serving=embedder, coming=coming))
    return await _serving_old(settings, ledger, searched, old, coming, opens)


async def _can_switch(ledger: Ledger, model: EmbeddingModel, states: list[ModelState]) -> bool:
    """Whether nothing lacks a vector of a model that was never searched: there is nothing to wait for."""
    known = state_of(states, model)
    return (known is None or known.retired_at is None) and not await ledger.unembedded(model, limit=1)


async def _without_wanted(
    settings: Settings, wanted: _Wanted, ledger: Ledger, searched: ModelState | None, opens: Opens
) -> Chosen:
    """What serves while the embedder of the settings is away: the one before, if there is another."""
    assert wanted.trouble is not None
    if searched is None or searched.origin.spec == wanted.origin.spec:
        raise wanted.trouble
    old = await _open_searched(settings, searched, opens)
    if old is None:
        raise wanted.trouble
    _log.warning("memories go on being searched by %s: %s", searched.model, wanted.trouble)
    coming = Coming(wanted.origin, open=lambda: opens.embedder(settings))
    return await _serving_old(settings, ledger, searched, old, coming, opens)


async def _serving_old(
    settings: Settings, ledger: Ledger, searched: ModelState, old: Embedder, coming: Coming, opens: Opens
) -> Chosen:
    """The same ledger, opened anew so that the vectors it is given are of the model that serves."""
    async with AsyncExitStack() as opened:
        opened.push_async_callback(old.close)
        reopened = await opens.ledger(settings, old.model)
        opened.pop_all()
    await ledger.close()
    return Chosen(reopened, old, ModelChange(reopened, searched, serving=old, coming=coming))


async def _open_searched(settings: Settings, searched: ModelState, opens: Opens) -> Embedder | None:
    """The embedder of the model that the ledger searches, if it can be had with these settings."""
    named = _named_by(settings, searched)
    if named is None:
        return None
    try:
        embedder = await opens.embedder(named)
    except RecollectError as error:
        _log.warning("%s, which the memories here are searched by, cannot be opened: %s", searched.model, error)
        return None
    if embedder.model != searched.model:
        _log.warning("%s is what %r opens, not %s", embedder.model, named.embedder, searched.model)
        await embedder.close()
        return None
    return embedder


def origin_of(settings: Settings) -> Origin:
    """How the settings name their embedder, without a key or a password."""
    if not settings.embedder.startswith("openai:"):
        return Origin(settings.embedder)
    return Origin(settings.embedder, _without_login(settings.embedder_url), settings.embedder_dimensions)


def _named_by(settings: Settings, searched: ModelState) -> Settings | None:
    """Settings that name the model that is searched; None if it was given as an object.

    A key goes to where it was meant for: that of the settings only to their own address.
    """
    origin = searched.origin
    spec = origin.spec or _guessed_spec(searched.model)
    if not spec:
        return None
    url, key = settings.embedder_before_url, settings.embedder_before_api_key
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


def _guessed_spec(model: EmbeddingModel) -> str:
    """How settings would name a model of which only the name was put down; empty if that cannot be told."""
    return model.name if model.name.startswith(_HUBS) else _OWN_SPECS.get(model.name, "")


def _without_login(url: str) -> str:
    try:
        parts = urlsplit(url)
        return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
    except ValueError:
        return ""


def _is_news(origin: Origin, known: Origin) -> bool:
    return bool(origin.spec) and origin != known


def _tell(wanted: EmbeddingModel, searched: EmbeddingModel, *, is_served: bool, was_retired: bool) -> None:
    if was_retired:
        _log.warning(
            "the settings name %s, which was replaced here by %s; %s. `recollect reembed --back` goes back to it",
            wanted,
            searched,
            "memories go on being searched by that one"
            if is_served
            else "that one cannot be opened, so memories are searched by what vectors there still are",
        )
    elif is_served:
        _log.warning(
            "memories go on being searched by %s until all have vectors of %s: a server or a worker makes them "
            "behind, `recollect reembed` makes them now",
            searched,
            wanted,
        )
    else:
        _log.warning(
            "the vectors here are of %s, which cannot be opened, and the embedder is now %s: until a server, a "
            "worker or `recollect reembed` has made new ones, memories are found by their words",
            searched,
            wanted,
        )
