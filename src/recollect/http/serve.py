"""Run the server until it is told to stop."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

from recollect.http.app import make_app
from recollect.http.auth.address import is_loopback
from recollect.http.auth.hosts import Hosts, allowed_hosts
from recollect.http.auth.rules import check_bind
from recollect.models.embedding import EmbeddingModel
from recollect.settings import Loaded, Settings
from recollect.wiring import open_ledger


def serve(loaded: Loaded) -> None:
    """Listen on the settings' address; returns after a graceful stop."""
    settings = loaded.settings
    # Before anything listens; what is wrong with the settings is said on the way.
    check_bind(settings, has_keys=is_loopback(settings.host) or asyncio.run(_has_keys(settings)))
    config = uvicorn.Config(
        Hosts(make_app(settings), allowed_hosts(settings)),
        host=settings.host,
        port=settings.port,
        log_level=settings.log_level,
        timeout_graceful_shutdown=30,
        server_header=False,
        # Who is asking is told by the address that really asks: a header can be made up.
        proxy_headers=False,
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


async def _has_keys(settings: Settings) -> bool:
    """Whether the ledger has keys; no vectors are made, so any model will do."""
    ledger = await open_ledger(settings, EmbeddingModel("none", 1))
    try:
        return await ledger.has_keys()
    finally:
        await ledger.close()
