"""Which headers pass from one side of the proxy to the other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from recollect.http.header_text import decode_header
from recollect.http.proxy.steering import HEADER_PREFIX
from recollect.http.upstream.protocol import Header

# They speak of one connection only, and there are two.
_HOP_BY_HOP = frozenset({
    b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"proxy-connection", b"te",
    b"trailer", b"trailers", b"transfer-encoding", b"upgrade", b"expect",
})  # fmt: skip
# The answer is read along, so it may come only in what we can read.
_READABLE_ENCODINGS = ("gzip", "deflate", "identity")
_MEMORY_PREFIX = HEADER_PREFIX.encode()


def headers_by_name(headers: Iterable[Header]) -> dict[str, str]:
    """The headers as they are looked up; of several with one name the first, so that nobody can override it."""
    first_values: dict[str, str] = {}
    for name, value in headers:
        first_values.setdefault(name.decode("latin-1").lower(), decode_header(value))
    return first_values


def headers_for_upstream(headers: Sequence[Header], *, length: int | None = None) -> list[Header]:
    """The client's headers as the upstream gets them: nothing that is ours, nor of this connection."""
    return [
        (name, value)
        for name, value in strip_hop_by_hop(headers)
        if (low := name.lower()) != b"host"
        and not low.startswith(_MEMORY_PREFIX)
        and not (length is not None and low == b"content-length")
    ]


def with_readable_encodings(headers: Iterable[Header]) -> list[Header]:
    """The headers with no encoding accepted that we could not read the answer in."""
    return [
        (name, _readable_encodings(value) if name.lower() == b"accept-encoding" else value) for name, value in headers
    ]


def _readable_encodings(value: bytes) -> bytes:
    offered = (each.strip() for each in value.decode("latin-1").split(","))
    return ", ".join(
        each for each in offered if each.partition(";")[0].strip().lower() in _READABLE_ENCODINGS
    ).encode() or (b"identity")


def headers_for_client(
    headers: Sequence[Header], extra: Mapping[str, str], *, length: int | None = None
) -> list[Header]:
    """The upstream's headers as the client gets them, with what is told of memory; `length` is of a changed body."""
    changed = length is not None
    passed = [
        (name, value)
        for name, value in strip_hop_by_hop(headers)
        if (low := name.lower()) != b"date"
        and not low.startswith(_MEMORY_PREFIX)
        and not (changed and low in (b"content-length", b"content-encoding"))
    ]
    if changed:
        passed.append((b"content-length", str(length).encode()))
    return passed + [(name.encode(), value.encode("latin-1", "replace")) for name, value in extra.items()]


def strip_hop_by_hop(headers: Sequence[Header]) -> list[Header]:
    """The headers that do not speak of the connection they came by, of its own accord or because they are told to."""
    values = (value for name, value in headers if name.lower() == b"connection")
    named = {each.strip().lower() for value in values for each in value.split(b",")}
    return [(name, value) for name, value in headers if (low := name.lower()) not in _HOP_BY_HOP and low not in named]
