"""The composition root: build a service and its parts from the settings. Optional parts are imported when used."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from hashlib import blake2b
from pathlib import Path
from secrets import randbelow
from typing import TYPE_CHECKING

from recollect import __version__
from recollect.cache.change_notifier import ChangeNotifier, RedisPubSub, SharedChangeNotifier
from recollect.config.fields import RecallSettings, SessionSettings
from recollect.config.settings import Settings, ledger_path
from recollect.errors import InvalidSettings, MissingExtra
from recollect.ledger.ledger import Ledger
from recollect.maintenance.embedding_migration import Openers, select_embedder
from recollect.maintenance.scheduler import HOURLY, NIGHTLY, MaintenanceSchedule
from recollect.maintenance.tasks import MaintenanceTask
from recollect.model.times import now
from recollect.model.usage import LlmQuota
from recollect.models.chat import Chat
from recollect.models.embedding import Embedder, EmbeddingModel, Reranker
from recollect.observability.tracing import start_tracing
from recollect.read.calibration import EmbedderCalibration
from recollect.read.late_interaction import LateInteraction
from recollect.read.result_cache import LookupCache, ResultCache
from recollect.remember import LearningConfig
from recollect.search import SearchDeps
from recollect.service.jobs import LearningModels
from recollect.service.service import Service, ServiceConfig
from recollect.service.spill_journal import SpillJournal
from recollect.write.extract import ExtractionLimits
from recollect.write.reconcile import ReconcileLimits
from recollect.write.redact import Redactor, install_log_filter
from recollect.write.triggers import Triggers

if TYPE_CHECKING:
    from recollect.index.protocol import Index
    from recollect.index.vector_store import ExternalVectorStore
    from recollect.mirror.mirror import Mirror


_log = logging.getLogger("recollect")
SPILL_FOLDER = "spill"
MILVUS_FILE, CHROMA_FOLDER = "milvus.db", "chroma"
_MIB = 1 << 20
# A batch of rows takes longer than a search.
_SYNC_TIMEOUT_S = 15.0
_EMBEDDER_HUBS = ("model2vec", "sentence-transformers", "fastembed")
_RERANKER_HUBS = ("sentence-transformers", "fastembed")
_LEDGER_ID_MOMENT = "shared"
# A notification covers all changes of this interval, so that their number does not matter to PostgreSQL.
_CHANNEL = "recollect_changes"
_NOTIFY_INTERVAL_S = 0.02


async def open_service(
    settings: Settings, *, embedder: Embedder | None = None, models: LearningModels | None = None
) -> Service:
    """Open a service. A caller's `embedder` replaces that of the settings, and `models` serve jobs without an LLM.

    Both stay the caller's to close.
    """
    install_log_filter()
    if settings.traces:
        start_tracing(settings.traces_url)
    async with AsyncExitStack() as opened:
        borrowed = None if embedder is None else _borrow_embedder(embedder, settings)
        selected = await select_embedder(settings, borrowed, Openers(open_embedder, open_ledger))
        ledger, embedder = selected.ledger, selected.embedder
        for part in (embedder.close, ledger.close, selected.migration.stop):
            opened.push_async_callback(part)
        index = open_index(settings, ledger, embedder.model)
        opened.push_async_callback(index.close)
        recall_settings = _recall_settings(settings)
        reranker = open_reranker(settings)
        if reranker is not None:
            opened.push_async_callback(reranker.close)
        late = LateInteraction(ledger) if settings.late_interaction else None
        search_deps = SearchDeps(ledger, index, embedder, EmbedderCalibration(embedder), reranker, late=late)
        result_cache = await open_result_cache(settings, search_deps, recall_settings)
        service = Service(
            search_deps,
            ServiceConfig(
                recall=recall_settings,
                learning=_learning_config(settings),
                maintenance=settings,
                schedule=_schedule(settings),
                max_memories=settings.user_max_records,
                recall_log=settings.recall_log,
                spill=spill_folder(settings),
            ),
            chat=open_chat(settings),
            result_cache=result_cache,
            change_notifier=await open_change_notifier(settings, ledger),
            models=models,
            migration=selected.migration,
        )
        if settings.mirror:
            service.mirror = open_mirror(settings, service)
        opened.pop_all()
    return service


def open_mirror(settings: Settings, service: Service) -> Mirror:
    """Return the mirror of the settings; it touches no file before it is used."""
    from recollect.mirror.mirror import Mirror

    return Mirror(service, root=mirror_folder(settings), root_user=settings.chat_user, git=settings.mirror_git)


def mirror_folder(settings: Settings) -> Path:
    """Return the folder of the mirror."""
    # Absolute, because git runs in it.
    return (settings.home.expanduser() / Path(settings.mirror).expanduser()).absolute()


# Configuration


def _recall_settings(settings: Settings) -> RecallSettings:
    # Terms of the last messages complete a question better than a small model does.
    uses_terms = settings.rewrite == "auto" and _is_small(settings)
    return settings.model_copy(update={"rewrite": "terms"}) if uses_terms else settings


def _learning_config(settings: Settings) -> LearningConfig:
    by = settings.learn if settings.learn != "auto" else "llm" if settings.llm else "selector"
    # The name of the built-in extraction before the trained selector.
    by = "selector" if by == "rules" else by
    if by == "llm" and not settings.llm:
        raise InvalidSettings("learn = llm needs a model: set llm, or use auto, selector or off")
    return LearningConfig(
        by=by,
        small=by == "llm" and _is_small(settings),
        triggers=Triggers(
            every=settings.learn_every,
            # The selector costs nothing, so waiting for more turns saves nothing.
            wait_s=settings.learn_wait_s if by == "llm" else 0.0,
            drift=settings.learn_drift,
            idle_s=settings.session_idle_s,
        ),
        overlap=settings.learn_overlap,
        mode=settings.learn_mode,
        ask_threshold=settings.learn_ask_threshold,
        limits=ExtractionLimits(
            default_importance=settings.default_importance,
            min_importance=settings.learn_min_importance,
            min_confidence=settings.learn_min_confidence,
            user_only=settings.learn_user_only,
            timeout_s=settings.llm_timeout_s,
        ),
        reconciling=ReconcileLimits(
            text_similarity=settings.merge_text_similarity,
            vector_similarity=settings.merge_vector_similarity,
            in_session=settings.learn_level == "session",
        ),
        allowance=LlmQuota(user=settings.llm_user_tokens_per_day, everyone=settings.llm_tokens_per_day),
        tries=settings.job_tries,
        redactor=_redactor(settings),
        sessions=SessionSettings(compress_every=0, session_episode=False, promote=False) if by == "off" else settings,
    )


def _redactor(settings: Settings) -> Redactor:
    return Redactor(memories=settings.redact_memories, turns=settings.redact_turns)


def _is_small(settings: Settings) -> bool:
    if settings.llm_size != "auto":
        return settings.llm_size == "small"
    from recollect.models.local_chat import find_model, is_small_model

    kind, _, name = settings.llm.partition(":")
    if kind == "local" and name:
        file = find_model(name)
        return is_small_model(file.stem, file)
    return is_small_model(settings.llm)


def _schedule(settings: Settings) -> MaintenanceSchedule:
    nightly = {name.strip() for name in settings.nightly_maintenance.split(",") if name.strip()}
    if unknown := nightly - set(map(str, NIGHTLY)):
        raise InvalidSettings(f"nightly_maintenance: {min(unknown)!r} is not one of {', '.join(NIGHTLY)}")
    tasks = frozenset((*HOURLY, *map(MaintenanceTask, nightly)))
    return MaintenanceSchedule(tasks=tasks, idle_s=settings.session_idle_s)


# Ledger


async def open_ledger(settings: Settings, model: EmbeddingModel) -> Ledger:
    """Open the ledger of the settings."""
    database, redactor = settings.database, _redactor(settings)
    if database.startswith(("postgresql://", "postgres://")):
        from recollect.ledger.postgres import open_postgres

        return await open_postgres(database, model, redactor, connections=settings.postgres_connections)
    if database in ("memory:", ":memory:"):
        from recollect.ledger.sqlite import open_in_memory

        return await open_in_memory(model, redactor)
    if "://" in database:
        scheme = database.partition("://")[0]
        raise InvalidSettings(f"database: {scheme}:// is not known; use postgresql://, a file name, or memory:")
    from recollect.ledger.sqlite import open_sqlite

    return await open_sqlite(ledger_path(settings), model, redactor)


@asynccontextmanager
async def open_store(settings: Settings) -> AsyncIterator[tuple[Ledger, Embedder]]:
    """Open the ledger and the embedder of the settings, without a service."""
    async with AsyncExitStack() as opened:
        embedder = await open_embedder(settings)
        opened.push_async_callback(embedder.close)
        ledger = await open_ledger(settings, embedder.model)
        opened.push_async_callback(ledger.close)
        yield ledger, embedder


def open_spill_journal(settings: Settings) -> SpillJournal:
    """Return the journal for turns that arrive while the ledger is unavailable."""
    return SpillJournal(
        spill_folder(settings),
        max_bytes=settings.spill_mb << 20,
        redactor=_redactor(settings),
        home=settings.home.expanduser(),
    )


def spill_folder(settings: Settings) -> Path:
    """Return the folder for turns that arrive while the ledger is unavailable; each ledger has its own."""
    return (
        settings.home.expanduser()
        / SPILL_FOLDER
        / blake2b(_ledger_identity(settings).encode(), digest_size=8).hexdigest()
    )


def _ledger_identity(settings: Settings) -> str:
    """Return the address of the ledger without credentials."""
    database = settings.database
    if database in ("memory:", ":memory:"):
        return "memory:"
    if "://" not in database:
        return str(ledger_path(settings).resolve())
    address, _, options = database.partition("://")[2].rpartition("@")[2].partition("?")
    parameters = sorted(option for option in options.split("&") if not option.startswith(("user=", "password=")))
    return f"{address}?{'&'.join(parameters)}"


# Index


def open_index(settings: Settings, ledger: Ledger, model: EmbeddingModel) -> Index:
    """Return the index of the settings; an external store is not contacted yet."""
    budget = settings.index_memory_mb * _MIB
    if settings.index in ("auto", "exact"):
        from recollect.index.exact import ExactIndex

        return ExactIndex(ledger, model, budget_bytes=budget)
    from recollect.index.store_sync import IndexSync
    from recollect.index.vector_store_index import VectorStoreIndex, VectorStoreLimits

    sizes = VectorStoreLimits(
        exact_rows=settings.index_exact_rows, budget_bytes=budget, timeout_s=settings.index_timeout_s
    )
    if settings.index == "pgvector":
        from recollect.index.pgvector import open_pgvector

        return VectorStoreIndex(ledger, model, open_pgvector(ledger, model), limits=sizes)
    store = open_vector_store(settings, model)
    sync = IndexSync(ledger, model, store, feed_name=_sync_name(settings, model))
    return VectorStoreIndex(ledger, model, store, limits=sizes, sync=sync)


def open_vector_store(settings: Settings, model: EmbeddingModel) -> ExternalVectorStore:
    """Return the vector database of the settings."""
    if settings.index == "milvus":
        from recollect.index.milvus import MilvusOptions, MilvusVectorStore

        return MilvusVectorStore(
            MilvusOptions(
                address=_milvus_address(settings),
                token=settings.milvus_token.get_secret_value(),
                collection=settings.milvus_collection,
                m=settings.milvus_m,
                ef_construction=settings.milvus_ef_construction,
                ef=settings.milvus_ef,
                timeout_s=_SYNC_TIMEOUT_S,
            ),
            model,
        )
    if settings.index == "chroma":
        from recollect.index.chroma import ChromaOptions, ChromaVectorStore

        return ChromaVectorStore(
            ChromaOptions(
                address=_chroma_address(settings),
                token=settings.chroma_token.get_secret_value(),
                collection=settings.chroma_collection,
                timeout_s=_SYNC_TIMEOUT_S,
            ),
            model,
        )
    raise InvalidSettings(f"index: {settings.index} is not part of this version")


def _milvus_address(settings: Settings) -> str:
    from recollect.index.milvus import MilvusOptions

    address = settings.milvus_address or str(settings.home.expanduser() / MILVUS_FILE)
    if MilvusOptions(address=address).is_lite and not address.endswith(".db"):
        raise InvalidSettings(f"milvus_address: {address!r} is no file.db, no host:port and no http:// address")
    return address


def _chroma_address(settings: Settings) -> str:
    return settings.chroma_address or str(settings.home.expanduser() / CHROMA_FOLDER)


def _sync_name(settings: Settings, model: EmbeddingModel) -> str:
    """Return the name of the synchronisation state: a new address or model is filled from the start."""
    address, collection = {
        "milvus": lambda: (_milvus_address(settings), settings.milvus_collection),
        "chroma": lambda: (_chroma_address(settings), settings.chroma_collection),
    }[settings.index]()
    return f"{settings.index} {address.rpartition('@')[2]} {collection} {model}"


# Models


def open_chat(settings: Settings) -> Chat | None:
    """Return the chat model of the settings, or None: everything works without one."""
    if not settings.llm:
        return None
    kind, _, name = settings.llm.partition(":")
    if kind == "local" and name:
        from recollect.models.local_chat import LocalChat

        return LocalChat(name, context_tokens=settings.llm_context_tokens, timeout_s=settings.llm_timeout_s)
    from recollect.models.openai_chat import OpenAIChat

    return OpenAIChat(
        settings.llm_url,
        settings.llm_api_key.get_secret_value(),
        model=settings.llm,
        timeout_s=settings.llm_timeout_s,
    )


async def open_embedder(settings: Settings) -> Embedder:
    """Open the embedder of the settings, with a cache."""
    return _cache_embeddings(await _open_uncached_embedder(settings), settings)


def _borrow_embedder(embedder: Embedder, settings: Settings) -> Embedder:
    from recollect.models.embedder_wrappers import CallerEmbedder

    return _cache_embeddings(CallerEmbedder(embedder), settings)


def _cache_embeddings(inner: Embedder, settings: Settings) -> Embedder:
    from recollect.models.embedder_wrappers import CachedEmbedder

    entries = settings.embedding_cache_mb * _MIB // (inner.model.dimensions * 4 + 200)
    return CachedEmbedder(inner, max_entries=entries) if entries else inner


async def _open_uncached_embedder(settings: Settings) -> Embedder:
    kind, _, name = settings.embedder.partition(":")
    if kind == "bundled" and not name:
        from recollect.models.static_embedder import StaticEmbedder

        return StaticEmbedder()
    if kind == "neural" and not name:
        from recollect.models.neural import NeuralEmbedder

        return NeuralEmbedder()
    if kind == "openai" and name:
        from recollect.models.openai_embedder import OpenAIEmbedder

        return await OpenAIEmbedder(
            settings.embedder_url,
            settings.embedder_api_key.get_secret_value(),
            model=name,
            dimensions=settings.embedder_dimensions or None,
            timeout_s=settings.embedder_timeout_s,
        ).with_dimensions()
    if kind in _EMBEDDER_HUBS and name:
        from recollect.models.hub import HubEmbedder

        return await HubEmbedder.load(settings.embedder)
    choices = ", ".join(("bundled", "neural", "openai:MODEL", *(f"{hub}:NAME" for hub in _EMBEDDER_HUBS)))
    raise InvalidSettings(f"embedder: {settings.embedder!r} is not known; use {choices}")


def open_reranker(settings: Settings) -> Reranker | None:
    """Return the reranker of the settings, or None if they name none or its package is not installed."""
    kind, _, name = settings.reranker.partition(":")
    if kind in ("none", "") and not name:
        return None
    try:
        if kind in ("neural", "auto") and not name:
            from recollect.models.neural import NeuralReranker

            return NeuralReranker()
        if kind in _RERANKER_HUBS and name:
            from recollect.models.hub import HubReranker

            return HubReranker.named(settings.reranker)
    except MissingExtra as error:
        level = logging.INFO if kind == "auto" else logging.WARNING
        _log.log(level, "search results are not reranked: %s", error)
        return None
    if kind == "http" and name:
        from recollect.models.http_reranker import HttpReranker

        key = settings.reranker_api_key.get_secret_value()
        return HttpReranker(settings.reranker_url, key, model=name, timeout_s=settings.rerank_timeout_s)
    choices = ", ".join(("none", "neural", "auto", *(f"{hub}:NAME" for hub in _RERANKER_HUBS)))
    raise InvalidSettings(f"reranker: {settings.reranker!r} is not known; use {choices} or http:MODEL")


# Caches and notifications


async def open_result_cache(
    settings: Settings, search_deps: SearchDeps, recall_settings: RecallSettings
) -> ResultCache | None:
    """Return the cache of search results, if there is a Redis."""
    if not settings.redis_url:
        return None
    from recollect.cache.answer_cache import AnswerCache
    from recollect.cache.redis_client import RedisClient

    redis = RedisClient(settings.redis_url, timeout_s=settings.redis_timeout_s)
    answers = AnswerCache(
        redis,
        ledger_id=await _ledger_id(search_deps.ledger),
        prefix=settings.redis_prefix,
        ttl_s=settings.cache_ttl_s,
    )
    recall = {name: getattr(recall_settings, name) for name in RecallSettings.model_fields}
    variant = repr((__version__, recall, search_deps.embedder.model, settings.reranker, settings.llm))
    min_duration_s = settings.cache_min_ms / 1000
    result_cache = ResultCache(answers, search_deps.ledger, config_key=variant, min_s=min_duration_s)
    if settings.cache_lookups != "off":
        result_cache.lookup_cache = LookupCache(
            answers, search_deps.ledger, min_s=min_duration_s, single=settings.cache_lookups == "all"
        )
    return result_cache


async def open_change_notifier(settings: Settings, ledger: Ledger) -> ChangeNotifier:
    """Return the notifier of changes; with Redis or PostgreSQL it includes those of other processes."""
    if not settings.redis_url:
        return _database_notifier(ledger)
    from recollect.cache.redis_client import RedisClient

    redis = RedisClient(settings.redis_url, timeout_s=settings.redis_timeout_s)
    return SharedChangeNotifier(RedisPubSub(redis, f"{settings.redis_prefix}:{await _ledger_id(ledger)}:changes"))


def _database_notifier(ledger: Ledger) -> ChangeNotifier:
    if ledger.engine.dialect.name != "postgres":
        return ChangeNotifier()
    from recollect.ledger.postgres import PostgresEngine
    from recollect.ledger.postgres_pubsub import PostgresPubSub

    assert isinstance(ledger.engine, PostgresEngine)
    return SharedChangeNotifier(PostgresPubSub(ledger.engine, _CHANNEL), min_interval_s=_NOTIFY_INTERVAL_S)


async def _ledger_id(ledger: Ledger) -> str:
    """Return an id that distinguishes ledgers in one Redis: a time recorded in the ledger on first use."""
    moments = await ledger.maintenance_times()
    if _LEDGER_ID_MOMENT not in moments:
        await ledger.record_maintenance_times({_LEDGER_ID_MOMENT: now() + timedelta(microseconds=randbelow(10**9))})
        moments = await ledger.maintenance_times()
    return moments[_LEDGER_ID_MOMENT].isoformat()
