"""Paths under /v1 that are ours: none of them may go to the endpoint behind the proxy, answered here or not."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

from starlette.routing import Match, Route

# Of mem0's platform also what this server does not have.
OURS = frozenset({"memory", "memories", "ping", "entities", "batch", "feedback", "exports", "summary"})


class AllButOurs(Route):
    """Every path below one, but for those that begin with a name of ours."""

    def matches(self, scope: MutableMapping[str, Any]) -> tuple[Match, MutableMapping[str, Any]]:
        """Whether the path is somebody else's."""
        match, found = super().matches(scope)
        if match is Match.NONE or found["path_params"]["path"].partition("/")[0] not in OURS:
            return match, found
        return Match.NONE, {}
