"""What several processes share through Redis or PostgreSQL, opened as the settings say."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from random import randrange

from recollect import __version__
from recollect.ledger.protocol import Ledger
from recollect.ledger.sql.ledger import SqlLedger
from recollect.model.times import now
from recollect.read.again import ResultCache
from recollect.read.lookups import LookupCache
from recollect.read.search import SearchDeps
from recollect.recall import RecallConfig
from recollect.settings import Settings
from recollect.shared.news import ChangeNotifier, RedisPubSub, SharedChangeNotifier

_LEDGER_ID_MOMENT = "shared"
# Words are heard in one database only. Told together, changes cost it the same however many there are.
_CHANNEL = "recollect_changes"
_NOTIFY_INTERVAL_S = 0.02


async def open_result_cache(
    settings: Settings, search_deps: SearchDeps, recall_config: RecallConfig
) -> ResultCache | None:
    """What gives answers again that were found before, where there is a Redis to hold them."""
    if not settings.redis_url:
        return None
    from recollect.shared.answers import AnswerCache
    from recollect.shared.link import RedisClient

    redis = RedisClient(settings.redis_url, timeout_s=settings.redis_timeout_s)
    answers = AnswerCache(
        redis,
        ledger_id=await _ledger_id(search_deps.ledger),
        prefix=settings.redis_prefix,
        ttl_s=settings.cache_ttl_s,
    )
    # A set is told in another order by every process.
    plain = replace(recall_config, withhold=frozenset())
    variant = repr(
        (
            __version__,
            plain,
            sorted(recall_config.withhold),
            search_deps.embedder.model,
            settings.reranker,
            settings.llm,
        )
    )
    min_duration_s = settings.cache_from_ms / 1000
    result_cache = ResultCache(answers, search_deps.ledger, config_key=variant, min_s=min_duration_s)
    if settings.cache_lookups != "off":
        result_cache.lookup_cache = LookupCache(
            answers, search_deps.ledger, min_s=min_duration_s, single=settings.cache_lookups == "all"
        )
    return result_cache


async def open_change_notifier(settings: Settings, ledger: Ledger) -> ChangeNotifier:
    """What wakes those who follow changes; of those that other processes make, too, where something leads to them."""
    if not settings.redis_url:
        return _database_notifier(ledger)
    from recollect.shared.link import RedisClient

    redis = RedisClient(settings.redis_url, timeout_s=settings.redis_timeout_s)
    return SharedChangeNotifier(RedisPubSub(redis, f"{settings.redis_prefix}:{await _ledger_id(ledger)}:changes"))


def _database_notifier(ledger: Ledger) -> ChangeNotifier:
    if not isinstance(ledger, SqlLedger) or ledger.engine.dialect.name != "postgres":
        return ChangeNotifier()
    from recollect.ledger.postgres import PostgresEngine
    from recollect.ledger.postgres_wire import PostgresPubSub

    assert isinstance(ledger.engine, PostgresEngine)
    return SharedChangeNotifier(PostgresPubSub(ledger.engine, _CHANNEL), min_interval_s=_NOTIFY_INTERVAL_S)


async def _ledger_id(ledger: Ledger) -> str:
    """What tells this ledger from every other that shares a Redis: the moment it was first asked for."""
    moments = await ledger.maintenance_times()
    if _LEDGER_ID_MOMENT not in moments:
        await ledger.record_maintenance_times({_LEDGER_ID_MOMENT: now() + timedelta(microseconds=randrange(10**9))})
        moments = await ledger.maintenance_times()
    return moments[_LEDGER_ID_MOMENT].isoformat()
