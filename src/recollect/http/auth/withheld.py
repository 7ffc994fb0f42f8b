"""A key of ours is never sent on; where the endpoint wants one of its own and has none, that is said."""

from __future__ import annotations

from starlette.types import Scope

from recollect.http.auth.caller import STATE_KEY_REMOVED
from recollect.http.upstream.protocol import Upstream, UpstreamResponse
from recollect.http.upstream.upstreams import KeyedUpstream

KEY_MISSING = (
    "the endpoint that chats are sent to wants a key, and a Recollect key is not sent on: set upstream_api_key, or "
    "send yours in Authorization and the Recollect key in X-API-Key"
)


def lacks_key(scope: Scope, upstream: Upstream, reply: UpstreamResponse) -> bool:
    """Whether the endpoint refuses because it got no key at all; one on this machine may want none."""
    return (
        reply.status == 401
        and not isinstance(upstream, KeyedUpstream)
        and bool(scope["state"].get(STATE_KEY_REMOVED))
    )
