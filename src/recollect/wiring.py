"""From settings to a service: the only place that knows every implementation. Heavy ones are imported late."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

from recollect.errors import InvalidSettings
from recollect.ledger.protocol import Ledger
from recollect.models.embedding import Embedder, EmbeddingModel
from recollect.service import Service
from recollect.settings import Settings

_log = logging.getLogger("recollect")
LEDGER_FILE = "recollect.db"
_HUBS = ("model2vec", "sentence-transformers", "fastembed")
_MEGABYTE = 1 << 20


async def open_service(settings: Settings, *, embedder: Embedder | None = None) -> Service:
    """A service ready for use; an `embedder` given here takes the place of the one in the settings."""
    from recollect.index.exact import ExactIndex

    embedder = embedder or await open_embedder(settings)
    try:
        ledger = await open_ledger(settings, embedder.model)
    except BaseException:
        await embedder.close()
        raise
    await _warn_of_other_models(ledger, embedder.model)
    index = ExactIndex(ledger, embedder.model, budget_bytes=settings.index_memory_mb * _MEGABYTE)
    return Service(ledger=ledger, index=index, embedder=embedder)


async def _warn_of_other_models(ledger: Ledger, model: EmbeddingModel) -> None:
    known = await ledger.known_models()
    if known and model not in known:
        _log.warning(
            "the vectors here are of %s, and the embedder is now %s: until `recollect reembed` has run, "
            "memories are found by their words alone",
            ", ".join(map(str, known)),
            model,
        )


async def open_ledger(settings: Settings, model: EmbeddingModel) -> Ledger:
    """The ledger the settings name."""
    database = settings.database
    if database.startswith(("postgresql://", "postgres://")):
        from recollect.ledger.postgres import open_postgres

        return await open_postgres(database, model)
    if database == "memory:":
        from recollect.ledger.memory import open_memory

        return await open_memory(model)
    if "://" in database:
        scheme = database.partition("://")[0]
        raise InvalidSettings(f"database: {scheme}:// is not known; use postgresql://, a file name, or memory:")
    from recollect.ledger.sqlite import open_sqlite

    return await open_sqlite(ledger_path(settings), model)


def ledger_path(settings: Settings) -> Path:
    """The file of a SQLite ledger."""
    return Path(settings.database).expanduser() if settings.database else settings.home.expanduser() / LEDGER_FILE


async def open_embedder(settings: Settings) -> Embedder:
    """The embedder the settings name, behind a cache."""
    from recollect.models.cached_embedder import CachedEmbedder

    inner = await _inner_embedder(settings)
    entries = settings.embedding_cache_mb * _MEGABYTE // (inner.model.dimensions * 4 + 200)
    return CachedEmbedder(inner, max_entries=entries) if entries else inner


async def _inner_embedder(settings: Settings) -> Embedder:
    kind, _, name = settings.embedder.partition(":")
    if kind == "bundled" and not name:
        from recollect.models.static_embedder import StaticEmbedder

        return StaticEmbedder()
    if kind == "openai" and name:
        return await _openai_embedder(settings, name)
    if kind in _HUBS and name:
        from recollect.models.hub_embedder import HubEmbedder

        return await HubEmbedder.load(settings.embedder)
    known: Mapping[str, str] = {"bundled": "", "openai": ":MODEL", **dict.fromkeys(_HUBS, ":NAME")}
    raise InvalidSettings(
        f"embedder: {settings.embedder!r} is not known; use {', '.join(k + v for k, v in known.items())}"
    )


async def _openai_embedder(settings: Settings, name: str) -> Embedder:
    from recollect.models.openai_embedder import OpenAIEmbedder

    return await OpenAIEmbedder.connect(
        settings.embedder_url,
        settings.embedder_api_key.get_secret_value(),
        model=name,
        dimensions=settings.embedder_dimensions or None,
        timeout_s=settings.embedder_timeout_s,
    )
