"""From settings to a service: the only place that knows every implementation. Heavy ones are imported late."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import AsyncExitStack
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING

from recollect.conversation.afterwards import SessionConfig
from recollect.errors import InvalidInput, InvalidSettings, MissingExtra
from recollect.indexing import open_index
from recollect.learning_model import LearningModels
from recollect.ledger.protocol import Ledger
from recollect.model.usage import LlmQuota
from recollect.model_choice import Openers, select_embedder
from recollect.models.chat import Chat
from recollect.models.embedding import Embedder, EmbeddingModel
from recollect.models.rerank import Reranker
from recollect.observe.traces import start_tracing
from recollect.read.rank import RankingWeights
from recollect.read.ruler import EmbedderCalibration
from recollect.read.search import RankingConfig, SearchDeps
from recollect.recall import RecallConfig
from recollect.remember import LearningConfig
from recollect.service import Service
from recollect.settings import Settings
from recollect.sharing import open_change_notifier, open_result_cache
from recollect.upkeep.chores import MaintenanceConfig
from recollect.upkeep.prune import PruneConfig
from recollect.upkeep.quota import Quotas
from recollect.upkeep.report import MaintenanceTask
from recollect.upkeep.schedule import HOURLY, NIGHTLY, MaintenanceSchedule
from recollect.upkeep.worker import RetryPolicy
from recollect.write.extract import ExtractionLimits
from recollect.write.reconcile import ReconcileLimits
from recollect.write.screening.given import Redactor
from recollect.write.screening.log import install_log_filter
from recollect.write.triggers import Triggers

if TYPE_CHECKING:
    from recollect.mirror.mirror import Mirror

_log = logging.getLogger("recollect")
LEDGER_FILE = "recollect.db"
SPILL_FOLDER = "spill"
_HUBS = ("model2vec", "sentence-transformers", "fastembed")
_RERANKER_HUBS = ("sentence-transformers", "fastembed")
_MEGABYTE = 1 << 20


async def open_service(
    settings: Settings, *, embedder: Embedder | None = None, models: LearningModels | None = None
) -> Service:
    """A service ready for use; an `embedder` given here takes the place of the one in the settings.

    It stays the caller's to close, and so do the `models` that jobs learn with where the settings name none.
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
        recall_config = _recall_config(settings)
        reranker = open_reranker(settings)
        if reranker is not None:
            opened.push_async_callback(reranker.close)
        search_deps = SearchDeps(ledger, index, embedder, EmbedderCalibration(embedder), reranker)
        result_cache = await open_result_cache(settings, search_deps, recall_config)
        service = Service(
            search_deps,
            chat=open_chat(settings),
            recall_config=recall_config,
            learning=_learning_config(settings),
            maintenance=_maintenance_config(settings),
            max_concurrent_jobs=settings.worker_jobs,
            retry_policy=RetryPolicy(lease_s=settings.job_lease_s, tries=settings.job_tries),
            max_waiting_jobs=settings.most_waiting_jobs,
            max_memories=settings.user_memories_most,
            spill=spill_folder(settings),
            result_cache=result_cache,
            change_notifier=await open_change_notifier(settings, ledger),
            models=models,
        )
        if settings.mirror:
            service.operations.mirror = open_mirror(settings, service, ledger)
        service.operations.embedding_migration = selected.migration
        opened.pop_all()
    return service


def open_mirror(settings: Settings, service: Service, ledger: Ledger) -> Mirror:
    """The mirror that the settings name; nothing is touched before it is used."""
    from recollect.mirror.mirror import Mirror

    return Mirror(
        service, ledger, root=mirror_folder(settings), root_user=settings.chat_user, git=settings.mirror_git
    )


def mirror_folder(settings: Settings) -> Path:
    """The folder of the mirror."""
    return settings.home.expanduser() / Path(settings.mirror).expanduser()


def _recall_config(settings: Settings) -> RecallConfig:
    try:
        weights = RankingWeights(
            recency=settings.recency_weight,
            recency_days=settings.recency_days,
            recency_adds=settings.recency_adds,
            importance=settings.importance_weight,
            access=settings.access_weight,
        )
    except InvalidInput as error:
        raise InvalidSettings(str(error)) from None
    ranking = RankingConfig(
        fusion=settings.fusion,
        weights=weights,
        diversity=settings.diversity,
        per_source=settings.hits_per_source,
        elbow=settings.search_elbow,
        rerank_candidates=settings.rerank_candidates,
        rerank_timeout_s=settings.rerank_timeout_s,
    )
    return RecallConfig(
        timeout_s=settings.recall_timeout_s,
        is_selective=settings.recall_decide,
        # A small model completes a question worse than the terms of the last messages do.
        rewrite="terms" if settings.rewrite == "auto" and _is_small(settings) else settings.rewrite,
        rewrite_timeout_s=settings.rewrite_timeout_s,
        time_words=settings.time_words,
        facts=settings.recall_facts,
        facts_importance=settings.recall_facts_importance,
        tokens=settings.context_tokens,
        style=settings.context_format,
        place=settings.context_place,
        summary=settings.context_summary,
        turns=settings.recall_turns,
        withhold=frozenset(filter(None, map(str.strip, settings.recall_withhold.split(",")))),
        ranking=ranking,
    )


def _learning_config(settings: Settings) -> LearningConfig:
    by = settings.learn if settings.learn != "auto" else "llm" if settings.llm else "selector"
    # The name of the built-in learning before there was a trained model.
    by = "selector" if by == "rules" else by
    if by == "llm" and not settings.llm:
        raise InvalidSettings("learn = llm needs a model: set llm, or use auto, selector or off")
    return LearningConfig(
        by=by,
        small=by == "llm" and _is_small(settings),
        triggers=Triggers(
            every=settings.learn_every,
            # The selector costs nothing, so nothing is saved by waiting for more.
            wait_s=settings.learn_wait_s if by == "llm" else 0.0,
            drift=settings.learn_drift,
            idle_s=settings.session_idle_s,
        ),
        overlap=settings.learn_overlap,
        mode=settings.learn_mode,
        ask_threshold=settings.learn_ask_threshold,
        limits=ExtractionLimits(
            min_importance=settings.learn_min_importance,
            min_confidence=settings.learn_min_confidence,
            timeout_s=settings.llm_timeout_s,
        ),
        reconciling=ReconcileLimits(
            same_text=settings.same_letters,
            same_meaning=settings.same_meaning,
            in_session=settings.learn_level == "session",
        ),
        allowance=LlmQuota(user=settings.llm_user_tokens_a_day, everyone=settings.llm_tokens_a_day),
        tries=settings.job_tries,
        redactor=Redactor(memories=settings.redact_memories, turns=settings.redact_turns),
        after=SessionConfig(compress_every=0, episode=False, promote_from=None)
        if by == "off"
        else SessionConfig(
            compress_every=settings.compress_every,
            compress_keep=settings.compress_keep,
            extracts=settings.compress_without_llm,
            summary_every=settings.summary_every,
            invocations=settings.keep_invocations,
            episode=settings.session_episode,
            tasks=settings.task_episodes,
            promote_from=settings.promote_importance if settings.promote else None,
            timeout_s=settings.llm_timeout_s,
        ),
    )


def _is_small(settings: Settings) -> bool:
    if settings.llm_size != "auto":
        return settings.llm_size == "small"
    from recollect.models.chat_size import is_small_model
    from recollect.models.local_files import find_model

    kind, _, name = settings.llm.partition(":")
    if kind == "local" and name:
        file = find_model(name)
        return is_small_model(file.stem, file)
    return is_small_model(settings.llm)


def _maintenance_config(settings: Settings) -> MaintenanceConfig:
    nightly = {name.strip() for name in settings.upkeep_nightly.split(",") if name.strip()}
    if unknown := nightly - set(map(str, NIGHTLY)):
        raise InvalidSettings(f"upkeep_nightly: {min(unknown)!r} is not one of {', '.join(NIGHTLY)}")
    return MaintenanceConfig(
        quotas=Quotas(
            user=settings.quota_user,
            project=settings.quota_project,
            session=settings.quota_session,
            order=settings.quota_order,
        ),
        pruning=PruneConfig(days=settings.prune_days),
        schedule=MaintenanceSchedule(
            tasks=frozenset((*HOURLY, *map(MaintenanceTask, nightly))), idle_s=settings.session_idle_s
        ),
        forget_days=settings.forget_days,
        timeout_s=settings.llm_timeout_s,
    )


async def open_ledger(settings: Settings, model: EmbeddingModel) -> Ledger:
    """The ledger the settings name."""
    database = settings.database
    if database.startswith(("postgresql://", "postgres://")):
        from recollect.ledger.postgres import open_postgres

        return await open_postgres(database, model, connections=settings.postgres_connections)
    if database in ("memory:", ":memory:"):
        from recollect.ledger.memory import open_in_memory

        return await open_in_memory(model)
    if "://" in database:
        scheme = database.partition("://")[0]
        raise InvalidSettings(f"database: {scheme}:// is not known; use postgresql://, a file name, or memory:")
    from recollect.ledger.sqlite import open_sqlite

    return await open_sqlite(ledger_path(settings), model)


def ledger_path(settings: Settings) -> Path:
    """The file of a SQLite ledger."""
    return Path(settings.database).expanduser() if settings.database else settings.home.expanduser() / LEDGER_FILE


def spill_folder(settings: Settings) -> Path:
    """Where a server keeps what is said while the ledger is away.

    Each ledger has a folder of its own, or what was meant for one would be brought to another.
    """
    return (
        settings.home.expanduser()
        / SPILL_FOLDER
        / blake2b(_ledger_identity(settings).encode(), digest_size=8).hexdigest()
    )


def _ledger_identity(settings: Settings) -> str:
    """Which ledger it is, however one logs in to it."""
    database = settings.database
    if database in ("memory:", ":memory:"):
        return "memory:"
    if "://" not in database:
        return str(ledger_path(settings).resolve())
    address, _, options = database.partition("://")[2].rpartition("@")[2].partition("?")
    parameters = sorted(option for option in options.split("&") if not option.startswith(("user=", "password=")))
    return f"{address}?{'&'.join(parameters)}"


async def open_embedder(settings: Settings) -> Embedder:
    """The embedder the settings name, behind a cache."""
    return _cache_embeddings(await _open_uncached_embedder(settings), settings)


def open_chat(settings: Settings) -> Chat | None:
    """The chat model the settings name, or None where they name none: everything must work without."""
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


def open_reranker(settings: Settings) -> Reranker | None:
    """The reranker the settings name, or None where they name none, or one that is not installed."""
    kind, _, name = settings.reranker.partition(":")
    if kind in ("none", "") and not name:
        return None
    if (kind == "neural" and not name) or (kind in _RERANKER_HUBS and name):
        try:
            return _open_local_reranker(settings.reranker)
        except MissingExtra as error:
            # Found worse without it, but found.
            _log.warning("memories are recalled without a second look: %s", error)
            return None
    if kind == "http" and name:
        from recollect.models.http_reranker import HttpReranker

        key = settings.reranker_api_key.get_secret_value()
        return HttpReranker(settings.reranker_url, key, model=name, timeout_s=settings.rerank_timeout_s)
    choices = ", ".join(("none", "neural", *(f"{hub}:NAME" for hub in _RERANKER_HUBS)))
    raise InvalidSettings(f"reranker: {settings.reranker!r} is not known; use {choices} or http:MODEL")


def _open_local_reranker(name: str) -> Reranker:
    if name.partition(":")[0] == "neural":
        from recollect.models.neural_reranker import NeuralReranker

        return NeuralReranker()
    from recollect.models.hub_reranker import HubReranker

    return HubReranker.named(name)


def _borrow_embedder(embedder: Embedder, settings: Settings) -> Embedder:
    from recollect.models.borrowed_embedder import CallerEmbedder

    return _cache_embeddings(CallerEmbedder(embedder), settings)


def _cache_embeddings(inner: Embedder, settings: Settings) -> Embedder:
    from recollect.models.cached_embedder import CachedEmbedder

    entries = settings.embedding_cache_mb * _MEGABYTE // (inner.model.dimensions * 4 + 200)
    return CachedEmbedder(inner, max_entries=entries) if entries else inner


async def _open_uncached_embedder(settings: Settings) -> Embedder:
    kind, _, name = settings.embedder.partition(":")
    if kind == "bundled" and not name:
        from recollect.models.static_embedder import StaticEmbedder

        return StaticEmbedder()
    if kind == "neural" and not name:
        from recollect.models.neural_embedder import NeuralEmbedder

        return NeuralEmbedder()
    if kind == "openai" and name:
        return await _open_openai_embedder(settings, name)
    if kind in _HUBS and name:
        from recollect.models.hub_embedder import HubEmbedder

        return await HubEmbedder.load(settings.embedder)
    choices: Mapping[str, str] = {"bundled": "", "neural": "", "openai": ":MODEL", **dict.fromkeys(_HUBS, ":NAME")}
    raise InvalidSettings(
        f"embedder: {settings.embedder!r} is not known; use {', '.join(k + v for k, v in choices.items())}"
    )


async def _open_openai_embedder(settings: Settings, name: str) -> Embedder:
    from recollect.models.openai_embedder import OpenAIEmbedder

    return await OpenAIEmbedder.connect(
        settings.embedder_url,
        settings.embedder_api_key.get_secret_value(),
        model=name,
        dimensions=settings.embedder_dimensions or None,
        timeout_s=settings.embedder_timeout_s,
    )
