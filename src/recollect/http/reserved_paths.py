"""Paths under /v1 that are ours: none of them may go to the endpoint behind the proxy, answered here or not.

An endpoint that keeps responses keeps those of all our users together: it would give anyone anyone's.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from posixpath import normpath
from typing import Any

from starlette.routing import Match, Route

# Of mem0's platform also what this server does not have.
RESERVED_NAMES = frozenset({
    "agent", "memory", "memories", "ping", "entities", "batch", "feedback", "exports", "summary", "responses",
    "conversations",
})  # fmt: skip


class UnreservedRoute(Route):
    """Every path below one, but for those that begin with a name of ours."""

    def matches(self, scope: MutableMapping[str, Any]) -> tuple[Match, MutableMapping[str, Any]]:
        """Whether the path is somebody else's."""
        match, child_scope = super().matches(scope)
        if match is Match.NONE or RESERVED_NAMES.isdisjoint(_first_names(child_scope["path_params"]["path"])):
            return match, child_scope
        return Match.NONE, {}


def _first_names(path: str) -> set[str]:
    """The first name of a path, and the one an endpoint may read: without empty steps, and those that lead back."""
    return {each.partition("/")[0] for each in (path, normpath(f"/{path}").strip("/"))}
