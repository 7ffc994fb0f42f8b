"""A real Chroma server for tests: the program of its own wheel, in a folder of its own, on a port of this machine.

`running_chroma()` starts one on first use and keeps it until the process ends. It can also be stopped and frozen.
"""

from __future__ import annotations

import shutil
import socket
import sys
import urllib.error
import urllib.request
from functools import cache
from pathlib import Path

from tests.support.external_server import ExternalServer, started


class ChromaServer(ExternalServer):
    """A server whose data stays in its folder until it is closed."""

    name = "Chroma"
    start_s = 120.0

    def __init__(self) -> None:
        super().__init__()
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._port = free.getsockname()[1]

    @property
    def url(self) -> str:
        """Return its address."""
        return f"http://127.0.0.1:{self._port}"

    def _command(self) -> list[str]:
        return [
            _program(), "run", "--path", str(self._folder / "data"), "--host", "127.0.0.1", "--port", str(self._port),
        ]  # fmt: skip

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/api/v2/heartbeat", timeout=1) as answer:
                return bool(answer.status == 200)
        except (OSError, urllib.error.URLError):
            return False


def _program() -> str:
    program = Path(sys.executable).parent / "chroma"
    if program.exists():
        return str(program)
    if (installed := shutil.which("chroma")) is not None:
        return installed
    raise ModuleNotFoundError("a Chroma for tests needs its wheel: pip install 'recollect[chroma]'")


@cache
def running_chroma() -> ChromaServer:
    """Return the server of this process; it is started on first use."""
    return started(ChromaServer())
