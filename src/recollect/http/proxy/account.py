"""What an endpoint keeps for whoever its key belongs to: with a key of the server's, for all users together.

A user who listed its files, batches or stored chats would see those of everybody. So whoever speaks for one user gets
through only to what keeps nothing.
"""

from __future__ import annotations

import re
from urllib.parse import unquote

from starlette.types import Scope

from recollect.http.auth.caller import STATE_CALLER, Caller
from recollect.http.upstream.protocol import Upstream
from recollect.http.upstream.upstreams import KeyedUpstream

SHARED_ACCOUNT_MESSAGE = (
    "what the endpoint keeps there belongs to the server's own account, so to all its users, and whoever asks here "
    "speaks for one: a key for everyone reaches it, or every key once upstream_shared is set"
)
# Computed from what is sent, and forgotten.
_STATELESS_PATHS = re.compile(
    "/(?:completions|embeddings|moderations|audio/(?:speech|transcriptions|translations)"
    "|images/(?:generations|edits|variations)|rerank|score|classify|pooling|tokenize|detokenize)/?"
)
_MODEL_PATHS = re.compile("/models(?:/.*)?", re.DOTALL)
# However an endpoint reads its paths, none of these leads out of what was allowed.
_UNSAFE_PATH = re.compile(r"(?:^|[/\\])\.|[;\0-\x1f]|//")


def is_shared_account_request(scope: Scope, upstream: Upstream, path: str) -> bool:
    """Whether the request is for what is kept for all users, and comes from somebody who speaks for one of them."""
    caller: Caller = scope["state"][STATE_CALLER]
    is_single_user = caller.user is not None or caller.project is not None or caller.is_unknown
    return is_single_user and isinstance(upstream, KeyedUpstream) and not _is_stateless(scope["method"], path)


def _is_stateless(method: str, path: str) -> bool:
    decoded = unquote(path)
    if _UNSAFE_PATH.search(decoded):
        return False
    if method in ("GET", "HEAD"):
        return _MODEL_PATHS.fullmatch(decoded) is not None
    return method == "POST" and _STATELESS_PATHS.fullmatch(decoded) is not None
