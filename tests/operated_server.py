"""The server as an operator runs it, in a process of its own, which can be stopped and started again."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from server_process import RecollectServer


class RestartableServer:
    """`recollect serve` on one home, as often as it is started."""

    def __init__(self, home: Path, upstream: str) -> None:
        self.home = home
        # A loaded machine must not turn a slow search into a chat without memory.
        self._variables = {"OPENAI_BASE_URL": upstream, "RECOLLECT_MEMORY_TIMEOUT_S": "30"}
        self._running: RecollectServer | None = None

    @property
    def url(self) -> str:
        assert self._running is not None
        return f"{self._running.url}/v1"

    @property
    def log(self) -> str:
        assert self._running is not None
        return self._running.log

    def start(self) -> RestartableServer:
        self._running = RecollectServer(self.home, **self._variables).__enter__()
        return self

    def stop(self) -> None:
        if self._running is not None:
            self._running.process.send_signal(signal.SIGTERM)
            assert self._running.process.wait(60) == 0, self.log
            self._running.__exit__()
            self._running = None


@contextmanager
def process(home: Path, upstream: str) -> Iterator[RestartableServer]:
    """The server as long as the block lasts."""
    home.mkdir(exist_ok=True)
    server = RestartableServer(home, upstream).start()
    try:
        yield server
    finally:
        server.stop()
