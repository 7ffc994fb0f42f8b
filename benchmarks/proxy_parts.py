"""The processes that a measurement takes: they are started, awaited, asked and stopped here."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from benchmarks.proxy_load import Load
from benchmarks.proxy_server import BEAT_S, METERS

_START_S = 120


def free_port() -> int:
    """A port that nobody has at this moment."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


@contextmanager
def module(name: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """A module of ours as a process."""
    with stopping(subprocess.Popen([sys.executable, "-m", name, *arguments], stdin=subprocess.DEVNULL)) as process:
        yield process


@contextmanager
def stopping(process: subprocess.Popen[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    """A process that is told to stop afterwards."""
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def await_port(port: int, process: subprocess.Popen[bytes]) -> None:
    """Return when the process answers there; OSError if it does not."""
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline and process.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise OSError("it did not start")


def meters(port: int) -> dict[str, Any]:
    """What our server's meters show since they were last read."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{METERS}") as answer:
        return dict(json.load(answer))


class Beat:
    """How late a process that does nothing else comes to what is due: what the machine itself is good for."""

    def __init__(self) -> None:
        self._latest = 0.0
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            due = time.perf_counter() + BEAT_S
            time.sleep(BEAT_S)
            self._latest = max(self._latest, time.perf_counter() - due)

    def read(self) -> float:
        """The latest in seconds since it was last read."""
        latest, self._latest = self._latest, 0.0
        return latest


class Clients:
    """The process that makes the load; use it in a `with`."""

    def __enter__(self) -> Clients:
        command = [sys.executable, "-m", "benchmarks.proxy_load"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._stdin, self._stdout = self._process.stdin, self._process.stdout
        return self

    def __exit__(self, *_: object) -> None:
        self._stdin.close()
        self._process.wait(30)
        self._stdout.close()

    def begin(self, load: Load) -> None:
        """Let them chat."""
        self._stdin.write(json.dumps(asdict(load)).encode() + b"\n")
        self._stdin.flush()

    def end(self) -> dict[str, Any]:
        """What came of it, once it is over."""
        return dict(json.loads(self._stdout.readline()))
