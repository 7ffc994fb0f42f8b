"""The server as an operator runs it, in a process of its own, which can be stopped and started again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
from test_http import free_port

ENVIRONMENT = ("PATH", "PYTHONPATH", "HOME", "TMPDIR", "LANG", "VIRTUAL_ENV", "SYSTEMROOT")


class Process:
    """`recollect serve` on one home and one port, as often as it is started."""

    def __init__(self, home: Path, upstream: str) -> None:
        self.home = home
        self.port = free_port()
        self._log = home / "server.log"
        self._command = [sys.executable, "-m", "recollect.cli.main", "--home", str(home)]
        self._command += ["serve", "--port", str(self.port)]
        kept = {name: os.environ[name] for name in ENVIRONMENT if name in os.environ}
        # A loaded machine must not turn a slow search into a chat without memory.
        self._environment = {**kept, "OPENAI_BASE_URL": upstream, "RECOLLECT_CHAT_RECALL_S": "30"}
        self._running: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def log(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")

    def start(self) -> Process:
        with self._log.open("ab") as log:
            self._running = subprocess.Popen(self._command, stdout=log, stderr=log, env=self._environment)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            assert self._running.poll() is None, self.log
            try:
                assert httpx.get(f"http://127.0.0.1:{self.port}/live").status_code == 200
                return self
            except httpx.TransportError:
                time.sleep(0.05)
        raise TimeoutError(f"the server did not start within 60 s: {self.log}")

    def stop(self) -> None:
        if self._running is not None:
            self._running.send_signal(signal.SIGTERM)
            assert self._running.wait(30) == 0, self.log
            self._running = None


@contextmanager
def process(home: Path, upstream: str) -> Iterator[Process]:
    """The server as long as the block lasts."""
    home.mkdir(exist_ok=True)
    server = Process(home, upstream).start()
    try:
        yield server
    finally:
        server.stop()
