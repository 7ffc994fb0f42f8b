"""The sockets a server answers on: bound before anything else is opened, so that a taken port is told at once."""

from __future__ import annotations

import errno
import socket
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Self

from recollect.errors import InvalidSettings, Unavailable

# A client that hardly reads has this much more waiting for it here, and its upstream waits; what is on its way to
# clients far away is not bounded by it.
_MAX_UNSENT_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class BoundSockets:
    """Bound sockets, one for each address of the host; use it in a `with`."""

    sockets: Sequence[socket.socket]
    host: str

    @property
    def port(self) -> int:
        """The port, also where any free one was asked for."""
        return int(self.sockets[0].getsockname()[1])

    def url(self, *, tls: bool = False) -> str:
        """As a client writes it."""
        host = self.host.strip("[]")
        return f"http{'s' if tls else ''}://{f'[{host}]' if ':' in host else host}:{self.port}"

    def close(self) -> None:
        for each in self.sockets:
            each.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def bind_sockets(host: str, port: int) -> BoundSockets:
    """Bind the host's addresses; Unavailable if the port is taken."""
    try:
        addresses = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise InvalidSettings(f"host {host} is no address of this machine: {error.strerror}") from None
    sockets: list[socket.socket] = []
    for family, _, _, _, address in dict.fromkeys(addresses):
        # Of port 0 the first address takes any, and the others the same.
        bound_port = sockets[0].getsockname()[1] if sockets else port
        try:
            sockets.append(_bind_socket(family, (address[0], bound_port, *address[2:])))
        except OSError as error:
            if sockets and error.errno == errno.EADDRNOTAVAIL:
                continue
            for each in sockets:
                each.close()
            raise Unavailable(f"cannot listen on {host}, port {port}: {error.strerror}") from None
    return BoundSockets(sockets, host)


def _bind_socket(family: int, address: tuple[object, ...]) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        # Not every system knows it. Connections take it over from the socket that listens.
        with suppress(AttributeError, OSError):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, _MAX_UNSENT_BYTES)
        sock.bind(address)
        # From now on nobody else gets the port; connections wait until the server takes them.
        sock.listen(2048)
    except OSError:
        sock.close()
        raise
    return sock
