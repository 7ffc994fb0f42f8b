"""The credentials in the headers of a request, and the headers without ours, which are never forwarded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from starlette.types import Scope

from recollect.http.auth.caller import STATE_KEY_REMOVED
from recollect.http.params import decode_header
from recollect.http.upstream.protocol import Upstream, UpstreamResponse
from recollect.http.upstream.router import KeyedUpstream
from recollect.model.key import KEY_PREFIX

Header = tuple[bytes, bytes]

_PREFIX = KEY_PREFIX.encode()
_KEY_HEADERS = (b"x-api-key", b"api-key")
_SCHEMES = (b"bearer", b"token")


@dataclass(slots=True)
class Credentials:
    """A key, a token, and the user and project of a gateway."""

    key: str = ""
    token: str = ""
    users: tuple[str, ...] = ()
    projects: tuple[str, ...] = ()
    # The user and project that the client itself names.
    named_users: tuple[str, ...] = ()
    named_projects: tuple[str, ...] = ()
    # The client's address as reported by a proxy: the last one is the one that it saw itself.
    forwarded: str = ""


def read_credentials(headers: Sequence[Header], *, user_header: bytes, project_header: bytes) -> Credentials:
    """Return the credentials; the first key counts."""
    credentials = Credentials()
    for name, value in headers:
        if name == b"authorization":
            if key := _extract_key(value):
                credentials.key = credentials.key or key
            elif not credentials.token:
                scheme, _, rest = value.partition(b" ")
                credentials.token = rest.strip().decode("latin-1") if scheme.lower() == b"bearer" else ""
        elif name in _KEY_HEADERS:
            credentials.key = credentials.key or _extract_key(value)
        elif name == user_header:
            credentials.users += (decode_header(value),)
        elif name == b"x-memory-user":
            credentials.named_users += (decode_header(value),)
        elif name == b"x-memory-project":
            credentials.named_projects += (decode_header(value),)
        elif name == b"x-forwarded-for":
            credentials.forwarded = value.rpartition(b",")[2].strip().decode("latin-1")
        elif project_header and name == project_header:
            credentials.projects += (decode_header(value),)
    return credentials


def strip_own_keys(headers: Sequence[Header], *, also: frozenset[bytes] = frozenset()) -> list[Header]:
    """Return the headers without our keys and without the headers in `also`."""
    return [
        (name, value)
        for name, value in headers
        if name not in also and not ((name == b"authorization" or name in _KEY_HEADERS) and _extract_key(value))
    ]


def _extract_key(value: bytes) -> str:
    """Return our key in a header, or an empty text."""
    text = value.strip()
    if not text.startswith(_PREFIX):
        scheme, _, text = text.partition(b" ")
        text = text.strip()
        if scheme.lower() not in _SCHEMES or not text.startswith(_PREFIX):
            return ""
    return text.decode("latin-1")


KEY_MISSING = (
    "The upstream requires a key, and a Recollect key is not forwarded: set upstream_api_key, or send the upstream's "
    "key in Authorization and the Recollect key in X-API-Key"
)


def lacks_key(scope: Scope, upstream: Upstream, reply: UpstreamResponse) -> bool:
    """Return whether the upstream rejects the request because ours was its only key, which was removed."""
    return (
        reply.status == 401
        and not isinstance(upstream, KeyedUpstream)
        and bool(scope["state"].get(STATE_KEY_REMOVED))
    )
