"""Paths under /v1 that this server owns: the proxy forwards none of them, even where this server answers 404.

An upstream that stores responses stores those of all our users together, and would return them to any of them.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from posixpath import normpath
from typing import Any

from starlette.routing import Match, Route

# Includes paths of mem0's platform that this server does not have.
RESERVED_NAMES = frozenset({
    "agent", "memory", "memories", "ping", "entities", "batch", "feedback", "exports", "summary", "responses",
    "conversations",
})  # fmt: skip


class UnreservedRoute(Route):
    """A route for every path below a prefix, except those that begin with a reserved name."""

    def matches(self, scope: MutableMapping[str, Any]) -> tuple[Match, MutableMapping[str, Any]]:
        """Match unless the path is reserved."""
        match, child_scope = super().matches(scope)
        if match is Match.NONE or RESERVED_NAMES.isdisjoint(_first_names(child_scope["path_params"]["path"])):
            return match, child_scope
        return Match.NONE, {}


def _first_names(path: str) -> set[str]:
    """Return the first name of a path as written and as normalised, because an upstream may normalise it."""
    return {each.partition("/")[0] for each in (path, normpath(f"/{path}").strip("/"))}
