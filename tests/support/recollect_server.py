"""Servers for tests: in a thread of this process, and `recollect serve` in another process."""

from __future__ import annotations

import errno
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import uvicorn

from tests.support.forked import ForkedCommand

# Longer than a start or a stop takes on a machine that is busy with much else.
START_S = 300


@contextmanager
def in_thread(config: uvicorn.Config) -> Iterator[str]:
    """Serve in a thread on a free port; yield the address."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        deadline = time.monotonic() + START_S
        while not server.started and time.monotonic() < deadline:
            time.sleep(0.01)
        assert server.started
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(START_S)


def environment(home: Path, **more: str) -> dict[str, str]:
    """Return the environment of a process that uses `home` and no real LLM."""
    return {**os.environ, "RECOLLECT_HOME": str(home), "OPENAI_API_KEY": "", "PYTHONUNBUFFERED": "1", **more}


class RecollectServer:
    """`recollect serve`, another command that serves, or a script, on a free port; use it in a `with`."""

    def __init__(self, home: Path, *options: str, script: str = "", command: str = "serve", **variables: str) -> None:
        self._log = home.parent / f"{home.name}.log"
        arguments, environ = ["--port", "0", *options], environment(home, **variables)
        self.process: subprocess.Popen[str] | ForkedCommand
        if "--workers" not in options:
            self.process = ForkedCommand(
                [*(() if script else (command,)), *arguments], environ, self._log, script=script
            )
        else:
            # Its processes start the main module again.
            program = (script,) if script else ("-m", "recollect.cli.main", command)
            with self._log.open("wb") as log:
                self.process = subprocess.Popen(
                    [sys.executable, *program, *arguments],
                    stdout=subprocess.PIPE,
                    stderr=log,
                    env=environ,
                    text=True,
                    # Processes of a background shell ignore Ctrl-C; this one must not.
                    preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
                )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        match = re.search(r"https?://\S+:(\d+)", line)
        assert match, f"{line}\n{self.log}"
        self.url, self.port = match.group(), int(match[1])

    @property
    def log(self) -> str:
        return self._log.read_text()

    def __enter__(self) -> RecollectServer:
        self.wait_until_healthy()
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait(START_S)
        assert self.process.stdout is not None
        self.process.stdout.close()

    def wait_until_healthy(self) -> None:
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            assert self.process.poll() is None, self.log
            try:
                # The certificate's name is not tested here.
                assert httpx.get(f"{self.url}/health", verify=False, timeout=START_S).status_code == 200
                return
            except httpx.TransportError:
                time.sleep(0.05)
        raise AssertionError(f"the server did not start:\n{self.log}")

    def is_refused(self) -> bool:
        """Return whether a new connection is refused."""
        with socket.socket() as client:
            client.settimeout(START_S)
            return client.connect_ex(("127.0.0.1", self.port)) == errno.ECONNREFUSED


class RestartableServer:
    """`recollect serve` on one home; it can be stopped and started again."""

    def __init__(self, home: Path, upstream: str) -> None:
        self.home = home
        # On a loaded machine a slow search must not time out.
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
            assert self._running.process.wait(START_S) == 0, self.log
            self._running.__exit__()
            self._running = None


@contextmanager
def process(home: Path, upstream: str) -> Iterator[RestartableServer]:
    """Run the server during the block."""
    home.mkdir(exist_ok=True)
    server = RestartableServer(home, upstream).start()
    try:
        yield server
    finally:
        server.stop()
