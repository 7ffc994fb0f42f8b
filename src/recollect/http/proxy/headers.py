"""Which headers pass from one side of the proxy to the other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from recollect.http.header_text import header_text
from recollect.http.proxy.steering import HEADER_PREFIX
from recollect.http.upstream.protocol import Header

# They speak of one connection only, and there are two.
_OF_ONE_HOP = frozenset({
    b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"proxy-connection", b"te",
    b"trailer", b"trailers", b"transfer-encoding", b"upgrade", b"expect",
})  # fmt: skip
# The answer is read along, so it may come only in what we can read.
_READABLE = ("gzip", "deflate", "identity")
_OURS = HEADER_PREFIX.encode()


def by_name(headers: Iterable[Header]) -> dict[str, str]:
    """The headers as they are looked up; of several with one name the first, so that nobody can override it."""
    found: dict[str, str] = {}
    for name, value in headers:
        found.setdefault(name.decode("latin-1").lower(), header_text(value))
    return found


def to_upstream(headers: Sequence[Header], *, length: int | None = None) -> list[Header]:
    """The client's headers as the upstream gets them: nothing that is ours, nor of this connection."""
    return [
        (name, value)
        for name, value in beyond_one_hop(headers)
        if (low := name.lower()) != b"host"
        and not low.startswith(_OURS)
        and not (length is not None and low == b"content-length")
    ]


def readable(headers: Iterable[Header]) -> list[Header]:
    """The headers with no encoding accepted that we could not read the answer in."""
    return [(name, _readable(value) if name.lower() == b"accept-encoding" else value) for name, value in headers]


def _readable(value: bytes) -> bytes:
    offered = (each.strip() for each in value.decode("latin-1").split(","))
    return ", ".join(each for each in offered if each.partition(";")[0].strip().lower() in _READABLE).encode() or (
        b"identity"
    )


def to_client(headers: Sequence[Header], told: Mapping[str, str], *, length: int | None = None) -> list[Header]:
    """The upstream's headers as the client gets them, with what is told of memory; `length` is of a changed body."""
    changed = length is not None
    passed = [
        (name, value)
        for name, value in beyond_one_hop(headers)
        if (low := name.lower()) != b"date"
        and not low.startswith(_OURS)
        and not (changed and low in (b"content-length", b"content-encoding"))
    ]
    if changed:
        passed.append((b"content-length", str(length).encode()))
    return passed + [(name.encode(), value.encode("latin-1", "replace")) for name, value in told.items()]


def beyond_one_hop(headers: Sequence[Header]) -> list[Header]:
    """The headers that do not speak of the connection they came by, of its own accord or because they are told to."""
    values = (value for name, value in headers if name.lower() == b"connection")
    named = {each.strip().lower() for value in values for each in value.split(b",")}
    return [(name, value) for name, value in headers if (low := name.lower()) not in _OF_ONE_HOP and low not in named]
