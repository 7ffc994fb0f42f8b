"""What an upstream is: something that is sent a request and gives a reply as it comes."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from recollect.model.result import Hit

Header: TypeAlias = tuple[bytes, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestMemory:
    """What memory did for a request: the model that answers from memory alone has nothing else to go by.

    `keeps` says whether what the user says now is kept; `trouble` why memory could not be asked, if it could not.
    """

    hits: Sequence[Hit] = ()
    stores_turns: bool = True
    degraded_reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamRequest:
    """A request for an upstream; `path` comes after its base URL and is sent as it is, with its query.

    `known` never leaves this process; without it memory is off for the request.
    """

    method: str
    path: str
    query: str = ""
    headers: Sequence[Header] = ()
    body: bytes | AsyncIterable[bytes] = b""
    memory: RequestMemory | None = None


class UpstreamResponse(Protocol):
    """An answer whose head is here and whose body is on its way."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Sequence[Header]: ...

    def chunks(self) -> AsyncIterator[bytes]:
        """The body as it comes, still encoded as the headers say; a break is an UpstreamBroken."""
        ...

    async def close(self) -> None:
        """Let go of it, read to its end or not; an upstream that still writes notices at once."""
        ...


class Upstream(Protocol):
    """Where chats are answered."""

    @property
    def name(self) -> str: ...

    async def send(self, request: UpstreamRequest) -> UpstreamResponse:
        """The reply once its head is here; UpstreamUnavailable if none came."""
        ...

    async def close(self) -> None: ...
