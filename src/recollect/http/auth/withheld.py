"""A key of ours is never sent on; where the endpoint wants one of its own and has none, that is said."""

from __future__ import annotations

from starlette.types import Scope

from recollect.http.auth.caller import WITHHELD
from recollect.http.upstream.protocol import Reply, Upstream
from recollect.http.upstream.upstreams import Keyed

KEY_MISSING = (
    "the endpoint that chats are sent to wants a key, and a Recollect key is not sent on: set upstream_api_key, or "
    "send yours in Authorization and the Recollect key in X-API-Key"
)


def lacks_key(scope: Scope, upstream: Upstream, reply: Reply) -> bool:
    """Whether the endpoint refuses because it got no key at all; one on this machine may want none."""
    return reply.status == 401 and not isinstance(upstream, Keyed) and bool(scope["state"].get(WITHHELD))
