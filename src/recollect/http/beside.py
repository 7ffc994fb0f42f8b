"""A server in this process, on a port of its own, for as long as somebody needs it."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

from recollect.errors import Unavailable
from recollect.http.app import make_app
from recollect.http.listen import bind_sockets
from recollect.settings import Settings

_EMBEDDED_START_S = 60.0
_EMBEDDED_STOP_S = 40.0


@contextmanager
def run_embedded_server(settings: Settings) -> Iterator[str]:
    """Serve on a free port of this machine while the block runs; gives the address."""
    config = uvicorn.Config(make_app(settings), log_config=None, access_log=False, proxy_headers=False)
    server = uvicorn.Server(config)
    with bind_sockets("127.0.0.1", 0) as listening:
        thread = threading.Thread(
            target=_run_server, args=(server, list(listening.sockets)), name="recollect-server", daemon=True
        )
        thread.start()
        deadline = time.monotonic() + _EMBEDDED_START_S
        while not server.started and thread.is_alive() and time.monotonic() < deadline:
            time.sleep(0.01)
        if not server.started:
            raise Unavailable("the server could not start; `recollect serve` says why")
        try:
            yield listening.url()
        finally:
            server.should_exit = True
            thread.join(_EMBEDDED_STOP_S)


def _run_server(server: uvicorn.Server, sockets: list[socket.socket]) -> None:
    try:
        server.run(sockets)
    except SystemExit:
        # Said by its not having started.
        pass
