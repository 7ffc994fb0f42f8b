"""The sockets of a server, bound before anything else is opened, so that a port in use is reported at once."""

from __future__ import annotations

import errno
import socket
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Self

from recollect.errors import InvalidSettings, Unavailable

# The unsent bytes that are buffered for a slow client before its upstream has to wait; bytes in flight do not count.
_MAX_UNSENT_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class BoundSockets:
    """Bound sockets, one for each address of the host; a context manager that closes them."""

    sockets: Sequence[socket.socket]
    host: str

    @property
    def port(self) -> int:
        """Return the port, also if any free port was requested."""
        return int(self.sockets[0].getsockname()[1])

    def url(self, *, tls: bool = False) -> str:
        """Return the URL of the server."""
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
    """Bind the host's addresses; Unavailable if the port is in use."""
    try:
        addresses = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise InvalidSettings(f"host {host!r} is not an address of this machine: {error.strerror}") from None
    sockets: list[socket.socket] = []
    for family, _, _, _, address in dict.fromkeys(addresses):
        # With port 0 the first address gets a free port, and the others the same.
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
        # Not available on every system. Connections inherit it from the listening socket.
        with suppress(AttributeError, OSError):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, _MAX_UNSENT_BYTES)
        sock.bind(address)
        # From now on the port is reserved; connections wait until the server accepts them.
        sock.listen(2048)
    except OSError:
        sock.close()
        raise
    return sock
