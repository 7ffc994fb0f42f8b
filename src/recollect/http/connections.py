"""Connections before authentication: timeouts for requests that do not arrive, and limits on open connections.

uvicorn waits for ever for the rest of a request. Here the headers have to arrive in a fixed time, the body without a
long pause, and a client has to read its answer. If there are too many connections, the one that has been sending its
request or idle for the longest makes room, so that connections which send nothing do not keep others out. A request
that was received completely is never cut off, however long its answer takes.
"""

from __future__ import annotations

import asyncio
import json
import resource
from collections import Counter
from contextlib import suppress
from http import HTTPStatus
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from recollect.config.settings import Settings
from recollect.http.auth.address import Network, client_network, is_within, parse_networks
from recollect.http.errors import ErrorInfo, api_error
from recollect.observability.metrics import LIMITED

# Files that a connection may need: its own and that to an upstream. The others are for the ledger and models.
_FILES_PER_CONNECTION, _OTHER_FILES = 2, 128
_WANTED_FILES = 1 << 16
_MAX_HEADER_BYTES = 1 << 17


class ConnectionLimits:
    """Counts the connections of a process, in all and by address; addresses of trusted gateways are not limited."""

    def __init__(self, settings: Settings) -> None:
        self.header_s, self.body_s, self.send_s = (
            settings.header_timeout_s,
            settings.body_timeout_s,
            settings.send_timeout_s,
        )
        self._max = min(
            settings.max_connections, max(8, (_raise_file_limit() - _OTHER_FILES) // _FILES_PER_CONNECTION)
        )
        self._max_of_address = settings.max_connections_per_address or max(1, self._max // 2)
        self._gateways: tuple[Network, ...] = parse_networks(settings.trusted_gateways)
        self._count, self._by_address = 0, Counter[str]()
        # Those whose request is not complete and those without one, the longest waiting first.
        self._waiting: dict[GuardedProtocol, None] = {}

    def admit(self, connection: GuardedProtocol, address: str) -> ErrorInfo | None:
        """Count a new connection; return why it has to be closed, if no other one can make room for it."""
        self._count += 1
        self._by_address[address] += 1
        self._waiting[connection] = None
        if self._by_address[address] > self._max_of_address and not is_within(connection.peer, self._gateways):
            if not self._evict(connection, address):
                message = (
                    f"This address has {self._max_of_address} connections, as max_connections_per_address allows"
                )
                return ErrorInfo(429, "TooManyConnections", message, retry_after_s=1.0)
        elif self._count > self._max and not self._evict(connection):
            message = f"The server has {self._max} open connections; max_connections and the file limit set that"
            return ErrorInfo(503, "TooManyConnections", message, retry_after_s=1.0)
        return None

    def _evict(self, newest: GuardedProtocol, address: str = "") -> bool:
        for each in self._waiting:
            if each is not newest and address in ("", each.address):
                each.drop()
                return True
        return False

    def release(self, connection: GuardedProtocol, address: str) -> None:
        self._waiting.pop(connection, None)
        self._count -= 1
        self._by_address[address] -= 1
        if not self._by_address[address]:
            del self._by_address[address]

    def set_waiting(self, connection: GuardedProtocol, *, waits: bool) -> None:
        """Note whether the connection waits for its client, and may make room for others."""
        if waits:
            self._waiting[connection] = None
        else:
            self._waiting.pop(connection, None)


class GuardedProtocol(HttpToolsProtocol):
    """uvicorn's protocol with timeouts; `limits` is set by a subclass."""

    limits: ConnectionLimits

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # The client, and what counts as one client.
        self.peer = self.address = ""
        self._is_counted = False
        self._in_headers, self._in_body = True, False
        self._header_bytes = 0
        self._begun_at = self._data_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._send_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.peer = self.client[0] if self.client else ""
        self.address = client_network(self.peer)
        self._is_counted = True
        self._begun_at = self.loop.time()
        if refusal := self.limits.admit(self, self.address):
            LIMITED.add("connections")
            self._reject(refusal)
        else:
            self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._release()
        for timer in (self._timer, self._send_timer):
            if timer is not None:
                timer.cancel()

    def drop(self) -> None:
        """Close a connection that makes room for another."""
        LIMITED.add("connections")
        self._release()
        self.transport.abort()

    def _release(self) -> None:
        if self._is_counted:
            self._is_counted = False
            self.limits.release(self, self.address)

    def data_received(self, data: bytes) -> None:
        if self.parser is None or self.transport.is_closing():
            return
        super().data_received(data)
        if self._in_headers:
            self._header_bytes += len(data)
            if self._header_bytes > _MAX_HEADER_BYTES:
                message = f"The headers are larger than the limit of {_MAX_HEADER_BYTES >> 10} KiB"
                self._reject(ErrorInfo(431, "HeadersTooLarge", message))
        elif self._in_body:
            self._data_at = self.loop.time()
        if self._timer is None and (self._in_headers or self._in_body):
            self._watch()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if not self._in_headers:
            # A later request on the connection; the time of the first runs since the connection was made.
            self._in_headers, self._header_bytes, self._begun_at = True, 0, self.loop.time()

    def on_headers_complete(self) -> None:
        self._in_headers, self._in_body = False, True
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._in_body = False
        # Answered before its end, it waits for another request.
        self.limits.set_waiting(self, waits=self.cycle is None or self.cycle.response_complete)
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._is_counted and not self.pipeline:
            self.limits.set_waiting(self, waits=True)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._send_timer = self.loop.call_later(self.limits.send_s, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._send_timer is not None:
            self._send_timer.cancel()
            self._send_timer = None

    def _watch(self) -> None:
        """Wait for the rest of a request; a timer that runs already is not reset by each piece."""
        self._timer = None
        moment = self.loop.time()
        if self._in_headers:
            left_s = self._begun_at + self.limits.header_s - moment
            part, timeout_s, setting = "headers", self.limits.header_s, "header_timeout_s"
        elif self._in_body:
            # While the application does not read, the client cannot send.
            since = moment if self.flow.read_paused else max(self._data_at, self._begun_at)
            left_s = since + self.limits.body_s - moment
            part, timeout_s, setting = "body", self.limits.body_s, "body_timeout_s"
        else:
            return
        if left_s > 0:
            self._timer = self.loop.call_later(left_s, self._watch)
        else:
            message = f"The {part} of the request did not arrive within {timeout_s:g} s; {setting} sets that time"
            self._reject(ErrorInfo(408, "RequestTimeout", message))

    def _reject(self, error: ErrorInfo) -> None:
        """Answer, if nothing was sent yet, and close the connection."""
        if self.transport.is_closing():
            return
        cycle = self.cycle
        if cycle is None or not cycle.response_started or cycle.response_complete:
            body = json.dumps(api_error(error)).encode()
            head = [f"HTTP/1.1 {error.status} {HTTPStatus(error.status).phrase}", "content-type: application/json"]
            head += [f"content-length: {len(body)}", "connection: close"]
            head += [f"{name.lower()}: {value}" for name, value in error.all_headers.items()]
            self.transport.write("\r\n".join([*head, "", ""]).encode() + body)
        self.transport.close()


def guarded_protocol(settings: Settings) -> type[asyncio.Protocol]:

    class Protocol(GuardedProtocol):
        limits = ConnectionLimits(settings)

    return Protocol


def _raise_file_limit() -> int:
    """Raise this process's limit of open files as far as it may, and return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _WANTED_FILES if hard == resource.RLIM_INFINITY else min(hard, _WANTED_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
    return _WANTED_FILES if soft == resource.RLIM_INFINITY else soft
