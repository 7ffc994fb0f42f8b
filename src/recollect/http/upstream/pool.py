"""httpcore's connections, with what chats need of them besides: an upstream learns when nobody listens any more.

httpcore forgets an HTTP/2 stream that is closed early and does not tell the other side, so a model would go on
writing, at the user's cost, what nobody reads.
"""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from typing import Any

import httpcore
from h2.errors import ErrorCodes
from h2.events import DataReceived
from h2.exceptions import ProtocolError
from httpcore import AnyIOBackend, AsyncNetworkStream
from httpcore._async.http2 import AsyncHTTP2Connection

from recollect.http.upstream.address import check_resolved

# The only thing asked of it is how long a write may take.
_RESET_REQUEST = httpcore.Request("GET", "https://localhost", extensions={"timeout": {"write": 5.0}})


class ConnectionPool(httpcore.AsyncConnectionPool):
    """A pool of connections that say when a stream is given up."""

    def create_connection(self, origin: httpcore.Origin) -> httpcore.AsyncConnectionInterface:
        return _Connection(
            origin=origin,
            ssl_context=self._ssl_context,
            keepalive_expiry=self._keepalive_expiry,
            http1=self._http1,
            http2=self._http2,
            network_backend=self._network_backend,
        )


class _Connection(httpcore.AsyncHTTPConnection):
    """Opens what it was offered: HTTP/2 in our way, HTTP/1.1 in the usual one."""

    async def handle_async_request(self, request: httpcore.Request) -> httpcore.Response:
        try:
            async with self._request_lock:
                if self._connection is None:
                    self._connection = self._open_protocol(await self._connect(request))
        except BaseException:
            self._connect_failed = True
            raise
        return await super().handle_async_request(request)

    def _open_protocol(self, stream: AsyncNetworkStream) -> httpcore.AsyncConnectionInterface:
        ssl_object = stream.get_extra_info("ssl_object")
        offered = ssl_object is not None and ssl_object.selected_alpn_protocol() == "h2"
        kind = _Http2 if offered else httpcore.AsyncHTTP11Connection
        return kind(origin=self._origin, stream=stream, keepalive_expiry=self._keepalive_expiry)


class _Http2(AsyncHTTP2Connection):
    """Resets a stream that ends before its answer does."""

    async def _response_closed(self, stream_id: int) -> None:
        for event in self._events.get(stream_id, ()):
            # What was not read counts against the connection until it is said to be taken.
            if isinstance(event, DataReceived):
                with suppress(ProtocolError):
                    self._h2_state.acknowledge_received_data(event.flow_controlled_length or 0, stream_id)
        # One that came to its end is closed already, and resetting it is a mistake.
        with suppress(ProtocolError):
            self._h2_state.reset_stream(stream_id, error_code=ErrorCodes.CANCEL)
        with suppress(httpcore.NetworkError, httpcore.TimeoutException):
            await self._write_outgoing_data(_RESET_REQUEST)
        await super()._response_closed(stream_id)


class GuardedNetwork(AnyIOBackend):
    """The usual network, except for where nothing may be sent: a name is resolved once, looked at, and then used."""

    async def connect_tcp(self, host: str, port: int, *args: Any, **options: Any) -> AsyncNetworkStream:
        try:
            resolved = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError as error:
            raise httpcore.ConnectError(f"{host} is not known: {error}") from error
        addresses = list(dict.fromkeys(str(each[4][0]) for each in resolved))
        check_resolved(host, addresses)
        for address in addresses[:-1]:
            with suppress(httpcore.ConnectError):
                return await super().connect_tcp(address, port, *args, **options)
        return await super().connect_tcp(addresses[-1], port, *args, **options)
