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
from recollect.http.listen import listen
from recollect.settings import Settings

_START_S = 60.0
_STOP_S = 40.0


@contextmanager
def server_beside(settings: Settings) -> Iterator[str]:
    """Serve on a free port of this machine while the block runs; gives the address."""
    config = uvicorn.Config(make_app(settings), log_config=None, access_log=False, proxy_headers=False)
    server = uvicorn.Server(config)
    with listen("127.0.0.1", 0) as listening:
        thread = threading.Thread(
            target=_run, args=(server, list(listening.sockets)), name="recollect-server", daemon=True
        )
        thread.start()
        deadline = time.monotonic() + _START_S
        while not server.started and thread.is_alive() and time.monotonic() < deadline:
            time.sleep(0.01)
        if not server.started:
            raise Unavailable("the server could not start; `recollect serve` says why")
        try:
            yield listening.address()
        finally:
            server.should_exit = True
            thread.join(_STOP_S)


def _run(server: uvicorn.Server, sockets: list[socket.socket]) -> None:
    try:
        server.run(sockets)
    except SystemExit:
        # Said by its not having started.
        pass
