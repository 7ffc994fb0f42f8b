"""What several processes share through Redis or PostgreSQL, opened as the settings say."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from random import randrange

from recollect import __version__
from recollect.ledger.protocol import Ledger
from recollect.ledger.sql.ledger import SqlLedger
from recollect.model.times import now
from recollect.read.again import Again
from recollect.read.lookups import Lookups
from recollect.recall import Finders, Habits
from recollect.settings import Settings
from recollect.shared.news import News, RedisWire, SharedNews

_SHARED_SINCE = "shared"
# Words are heard in one database only. Told together, changes cost it the same however many there are.
_CHANNEL = "recollect_changes"
_PACE_S = 0.02


async def open_again(settings: Settings, finders: Finders, habits: Habits) -> Again | None:
    """What gives answers again that were found before, where there is a Redis to hold them."""
    if not settings.redis_url:
        return None
    from recollect.shared.answers import Answers
    from recollect.shared.link import Link

    link = Link(settings.redis_url, timeout_s=settings.redis_timeout_s)
    answers = Answers(
        link,
        ledger_id=await _ledger_id(finders.ledger),
        prefix=settings.redis_prefix,
        ttl_s=settings.cache_ttl_s,
    )
    # A set is told in another order by every process.
    plain = replace(habits, withhold=frozenset())
    ways = repr(
        (__version__, plain, sorted(habits.withhold), finders.embedder.model, settings.reranker, settings.llm)
    )
    from_s = settings.cache_from_ms / 1000
    again = Again(answers, finders.ledger, ways=ways, from_s=from_s)
    if settings.cache_lookups != "off":
        again.lookups = Lookups(answers, finders.ledger, from_s=from_s, single=settings.cache_lookups == "all")
    return again


async def open_news(settings: Settings, ledger: Ledger) -> News:
    """What wakes those who follow changes; of those that other processes make, too, where something leads to them."""
    if not settings.redis_url:
        return _news_by_database(ledger)
    from recollect.shared.link import Link

    link = Link(settings.redis_url, timeout_s=settings.redis_timeout_s)
    return SharedNews(RedisWire(link, f"{settings.redis_prefix}:{await _ledger_id(ledger)}:changes"))


def _news_by_database(ledger: Ledger) -> News:
    if not isinstance(ledger, SqlLedger) or ledger.engine.dialect.name != "postgres":
        return News()
    from recollect.ledger.postgres import PostgresEngine
    from recollect.ledger.postgres_wire import PostgresWire

    assert isinstance(ledger.engine, PostgresEngine)
    return SharedNews(PostgresWire(ledger.engine, _CHANNEL), pace_s=_PACE_S)


async def _ledger_id(ledger: Ledger) -> str:
    """What tells this ledger from every other that shares a Redis: the moment it was first asked for."""
    moments = await ledger.moments()
    if _SHARED_SINCE not in moments:
        await ledger.note_moments({_SHARED_SINCE: now() + timedelta(microseconds=randrange(10**9))})
        moments = await ledger.moments()
    return moments[_SHARED_SINCE].isoformat()
