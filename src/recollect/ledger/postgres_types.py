"""What the driver asks PostgreSQL about its types, asked once in a process instead of once for each connection.

It knows few arrays by itself. Of any other it asks what it is made of, when a statement first has one: a question of
some milliseconds, for which each of many new connections would keep somebody waiting.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

# Types below this number come with PostgreSQL, and are the same in all of its databases.
_FIRST_CUSTOM_OID = 16_384
# All arrays that our statements have.
ARRAYS = "SELECT NULL::bigint[], NULL::real[]"
# What it told, by the types that were asked about.
_TYPE_CACHE: dict[frozenset[int], list[Any]] = {}


@dataclass(frozen=True, slots=True)
class _CachedStatement:
    """Stands for the statement that asks; one with a name leaves the statement that is being prepared as it is."""

    name: str = "known"


class TypeCachingConnection:
    """The part of a connection that knows what others were told."""

    async def _introspect_types(self, typeoids: Iterable[int], within_s: float | None) -> tuple[list[Any], Any]:
        types = frozenset(typeoids)
        for cached_oids, cached_types in _TYPE_CACHE.items():
            if types <= cached_oids:
                return cached_types, _CachedStatement()
        introspected, statement = await super()._introspect_types(typeoids, within_s)  # type: ignore[misc]
        if max(types, default=_FIRST_CUSTOM_OID) < _FIRST_CUSTOM_OID:
            _TYPE_CACHE[types] = list(introspected)
        return introspected, statement
