"""All endpoints that chats are sent to, and which of them a model is at."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import translate
from functools import lru_cache
from re import Pattern
from re import compile as pattern

from recollect.http.upstream.address import checked_url
from recollect.http.upstream.plain import PlainUpstream
from recollect.http.upstream.protocol import Upstream
from recollect.http.upstream.secure import SecureUpstream
from recollect.settings import Settings

OPENAI_URL = "https://api.openai.com/v1"


@dataclass(frozen=True, slots=True)
class Route:
    """The names of some models, where they are, and the key for it; without one the client's own is passed on."""

    models: tuple[Pattern[str], ...]
    upstream: Upstream
    key: str = ""


class Upstreams:
    """Every endpoint; the last one takes what no other does."""

    def __init__(self, routes: Sequence[Route]) -> None:
        self._routes = tuple(routes)
        self.of = lru_cache(maxsize=1024)(self._of)

    def _of(self, model: str) -> Route:
        """Where a model is."""
        named = (route for route in self._routes if any(each.match(model) for each in route.models))
        return next(named, self._routes[-1])

    @property
    def are_many(self) -> bool:
        """Whether it matters which model is asked for."""
        return len(self._routes) > 1

    async def close(self) -> None:
        """Let go of all connections."""
        await asyncio.gather(*(route.upstream.close() for route in self._routes), return_exceptions=True)


def open_upstreams(settings: Settings, *, without: Upstream) -> Upstreams:
    """The endpoints of the settings; where there is none, `without` answers."""
    routes = [
        _route(f"upstream {name}", each.url, each.models, each.api_key.get_secret_value(), settings)
        for name, each in settings.upstreams.items()
    ]
    key = settings.upstream_api_key.get_secret_value()
    url = settings.upstream_url or (OPENAI_URL if key else "")
    routes.append(_route("upstream_url", url, "*", key, settings) if url else Route((), without))
    return Upstreams(routes)


def _route(name: str, url: str, models: str, key: str, settings: Settings) -> Route:
    url = checked_url(url, name=name)
    kind = SecureUpstream if url.startswith("https:") else PlainUpstream
    upstream = kind(url, url, connect_s=settings.upstream_connect_s, idle_s=settings.upstream_timeout_s)
    return Route(tuple(pattern(translate(each.strip())) for each in models.split(",")), upstream, key)
