"""Run the server until it is told to stop."""

from __future__ import annotations

import ipaddress
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

from recollect.errors import InvalidSettings
from recollect.http.app import make_app
from recollect.settings import Loaded


def serve(loaded: Loaded) -> None:
    """Listen on the settings' address; returns after a graceful stop."""
    settings = loaded.settings
    if not is_loopback(settings.host):
        raise InvalidSettings(
            f"host {settings.host} can be reached from other machines, and there is no authentication yet: "
            f"use 127.0.0.1 and put a gateway in front"
        )
    config = uvicorn.Config(
        make_app(settings),
        host=settings.host,
        port=settings.port,
        log_level=settings.log_level,
        timeout_graceful_shutdown=30,
        server_header=False,
    )
    _Server(config).run()


class _Server(uvicorn.Server):
    """Being told to stop and stopping is success: the signal is not raised again afterwards."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
