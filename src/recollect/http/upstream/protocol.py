"""The interface of an upstream: it takes a request and returns a response whose body is still arriving."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Sequence
from typing import Protocol, TypeAlias

from recollect.frozen_dataclass import frozen_dataclass
from recollect.service.extractive_answer import RequestMemory

Header: TypeAlias = tuple[bytes, bytes]
# An answer that has to be read as a whole may be as large as a request.
MAX_BUFFERED_BYTES = 32 << 20


@frozen_dataclass(kw_only=True)
class UpstreamRequest:
    """A request to an upstream; `path` is appended to its base URL as it is, with the query.

    `memory` never leaves this process; None means that memory is off for the request.
    """

    method: str
    path: str
    query: str = ""
    headers: Sequence[Header] = ()
    body: bytes | AsyncIterable[bytes] = b""
    memory: RequestMemory | None = None


class UpstreamResponse(Protocol):
    """A response whose head has arrived and whose body is arriving."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Sequence[Header]: ...

    def chunks(self) -> AsyncIterator[bytes]:
        """Iterate over the body as it arrives, encoded as the headers say; raises UpstreamBroken if it breaks."""
        ...

    async def close(self) -> None:
        """Release the connection; an upstream that is still sending notices at once."""
        ...


class Upstream(Protocol):
    """An endpoint that answers chats."""

    @property
    def name(self) -> str: ...

    async def send(self, request: UpstreamRequest) -> UpstreamResponse:
        """Return the response once its head has arrived, or raise UpstreamUnavailable."""
        ...

    async def close(self) -> None: ...


@frozen_dataclass
class BufferedResponse:
    """A response that was read, and the `rest` of one that is too large; `parts` are relayed one by one."""

    status: int
    headers: Sequence[Header]
    parts: Sequence[bytes]
    rest: AsyncIterator[bytes] | None = None

    @property
    def is_complete(self) -> bool:
        return self.rest is None

    @property
    def body(self) -> bytes:
        return b"".join(self.parts)

    async def chunks(self) -> AsyncIterator[bytes]:
        for part in self.parts:
            yield part
        if self.rest is not None:
            async for part in self.rest:
                yield part

    async def close(self) -> None: ...


async def buffer_response(response: UpstreamResponse, *, max_bytes: int = MAX_BUFFERED_BYTES) -> BufferedResponse:
    """Read a response to its end and close it; of one larger than `max_bytes` the rest is left to the caller."""
    if isinstance(response, BufferedResponse):
        return response
    parts: list[bytes] = []
    size, chunks = 0, response.chunks()
    try:
        async for chunk in chunks:
            parts.append(chunk)
            size += len(chunk)
            if size > max_bytes:
                return BufferedResponse(response.status, tuple(response.headers), parts, chunks)
    except BaseException:
        await response.close()
        raise
    await response.close()
    return BufferedResponse(response.status, tuple(response.headers), parts)
