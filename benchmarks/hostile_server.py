"""A server that measures for how long its event loop is held: `benchmarks.hostile_server HOME PORT UPSTREAM`.

A held loop answers nobody. On a busy machine it also waits for the processor, so that only the time counts in which
this process computed. GET /held returns the milliseconds of each iteration since the last call, and starts anew.
"""

from __future__ import annotations

import asyncio
import sys
from time import perf_counter, process_time

from starlette.types import ASGIApp, Receive, Scope, Send

from recollect.config.settings import Settings, load
from recollect.http.app import make_app
from recollect.http.proxy.asgi_io import send_json
from recollect.http.server import bind_sockets, serve

_PAUSE_S = 0.002


class MeasuredApp:
    """The application, and a task that measures how late it is resumed."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._task: asyncio.Task[None] | None = None
        self._held_ms: list[float] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._task = self._task or asyncio.create_task(self._measure())
        if scope.get("path") != "/held":
            await self._app(scope, receive, send)
            return
        held_ms, self._held_ms = self._held_ms, []
        await send_json(send, 200, {"held_ms": held_ms}, {})

    async def _measure(self) -> None:
        while True:
            started, computed = perf_counter(), process_time()
            await asyncio.sleep(_PAUSE_S)
            late_s, computed_s = perf_counter() - started - _PAUSE_S, process_time() - computed
            self._held_ms.append(round(1000 * max(0.0, min(late_s, computed_s)), 2))


def _make(settings: Settings) -> ASGIApp:
    return MeasuredApp(make_app(settings))


def main() -> None:
    """Serve until a signal."""
    home, port, upstream = sys.argv[1:]
    settings = load({"home": home, "port": int(port), "upstream_url": upstream}, environ={}).settings
    serve(settings, bind_sockets("127.0.0.1", int(port)), make=_make)


if __name__ == "__main__":
    main()
