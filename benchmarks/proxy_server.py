"""Our server with extra metrics: `python -m benchmarks.proxy_server HOME PORT UPSTREAM`.

GET /benchmark-metrics returns the metrics since it was last read: how long recalls took, the longest stall of the
event loop, CPU time, and resident memory.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send

from benchmarks.harness import resident_mb
from recollect.config.settings import Settings, load
from recollect.http.app import make_app
from recollect.http.server import bind_sockets, serve
from recollect.model.result import RecallResult
from recollect.service.service import Service

METRICS = "/benchmark-metrics"
BEAT_S = 0.002


class MeteredApp:
    """The application with extra metrics."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._recalls = list[float]()
        self._stall = 0.0
        self._cpu = process_time()
        self._time_recalls()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            self._beating = asyncio.create_task(self._beat())
        if scope.get("path") != METRICS:
            await self._app(scope, receive, send)
            return
        body = json.dumps(self._read()).encode()
        headers = [(b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    def _time_recalls(self) -> None:
        plain = Service.recall

        async def timed(*inputs: Any, **named: Any) -> RecallResult:
            start = perf_counter()
            try:
                return await plain(*inputs, **named)
            finally:
                self._recalls.append(perf_counter() - start)

        Service.recall = timed  # type: ignore[method-assign]

    async def _beat(self) -> None:
        while True:
            due = perf_counter() + BEAT_S
            await asyncio.sleep(BEAT_S)
            self._stall = max(self._stall, perf_counter() - due)

    def _read(self) -> dict[str, Any]:
        report = {
            "recalls_s": self._recalls,
            "stall_s": self._stall,
            "cpu_s": process_time() - self._cpu,
            "resident_mb": resident_mb(),
        }
        self._recalls, self._stall, self._cpu = [], 0.0, process_time()
        return report


def make_metered_app(settings: Settings) -> ASGIApp:
    """Return the application of these settings."""
    return MeteredApp(make_app(settings))


if __name__ == "__main__":
    home, port, upstream = sys.argv[1:]
    options = {"home": Path(home), "upstream_url": upstream, "log_level": "warning"}
    serve(load(options, environ={}).settings, bind_sockets("127.0.0.1", int(port)), make=make_metered_app)
