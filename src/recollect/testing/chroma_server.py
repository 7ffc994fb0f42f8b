"""A real Chroma server for tests: the program of its own wheel, in a folder of its own, on a port of this machine.

`running_chroma()` starts one on first use and keeps it until the process ends. It can also be stopped and frozen.
"""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from functools import cache
from pathlib import Path

START_S = 120.0
# Ends the server when our end of the pipe closes, however that comes about; tells its number first.
_WATCHED = '"$@" & server=$!; echo $server > "$0"; read _; kill -KILL $server; wait $server'


class ChromaServer:
    """One server; what it holds stays in its folder until it is closed."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="recollect-chroma-"))
        self._number = self._folder / "number"
        self._watcher: subprocess.Popen[bytes] | None = None
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._port = free.getsockname()[1]

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Start it with what it had, and wait until it answers."""
        command = [
            _program(), "run", "--path", str(self._folder / "data"), "--host", "127.0.0.1", "--port", str(self._port),
        ]  # fmt: skip
        with (self._folder / "log").open("ab") as log:
            self._watcher = subprocess.Popen(
                ["sh", "-c", _WATCHED, str(self._number), *command],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        give_up = time.monotonic() + START_S
        while not self._answers():
            if self._watcher.poll() is not None or time.monotonic() > give_up:
                raise RuntimeError(f"Chroma did not start:\n{(self._folder / 'log').read_text()[-2000:]}")
            time.sleep(0.05)

    def stop(self) -> None:
        """End it at once."""
        if self._watcher is not None:
            assert self._watcher.stdin is not None
            self._watcher.stdin.close()
            self._watcher.wait()
            self._watcher = None

    def freeze(self) -> None:
        """Make it stand still: connections stay open, nothing answers."""
        os.kill(int(self._number.read_text()), signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on after `freeze`."""
        os.kill(int(self._number.read_text()), signal.SIGCONT)

    def close(self) -> None:
        """End it and remove its folder."""
        self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/api/v2/heartbeat", timeout=1) as answer:
                return bool(answer.status == 200)
        except (OSError, urllib.error.URLError):
            return False


def _program() -> str:
    beside = Path(sys.executable).parent / "chroma"
    if beside.exists():
        return str(beside)
    if (installed := shutil.which("chroma")) is not None:
        return installed
    raise ModuleNotFoundError("a Chroma for tests needs its wheel: pip install 'recollect[chroma]'")


@cache
def running_chroma() -> ChromaServer:
    """The one server of this process, started on first use."""
    server = ChromaServer()
    atexit.register(server.close)
    server.start()
    return server
