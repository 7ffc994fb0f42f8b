"""A real Milvus for tests: the server of the wheel milvus, in a folder and a network of its own.

`running_milvus()` starts one on first use and keeps it until the process ends. It can also be stopped and frozen. It
would listen on all interfaces, so it runs where there are none, and is reached through a port of 127.0.0.1.
"""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from recollect.testing.relay import LocalPort

START_S = 180.0


class MilvusServer:
    """One server, reached through a port of this machine alone."""

    def __init__(self) -> None:
        if find_spec("milvus") is None:
            raise ModuleNotFoundError("a Milvus for tests needs its wheel: pip install milvus")
        self._folder = Path(tempfile.mkdtemp(prefix="recollect-milvus-"))
        self._port = LocalPort(self._folder / "socket")
        self._watcher: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self._port.number}"

    def start(self) -> None:
        """Start it with what it had, and wait until it answers."""
        alone = ["unshare", "-n"] if os.geteuid() == 0 else ["unshare", "-rn"]
        with (self._folder / "log").open("ab") as log:
            self._watcher = subprocess.Popen(
                [*alone, sys.executable, "-m", "recollect.testing.milvus_inside", str(self._folder)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        give_up = time.monotonic() + START_S
        while not self._answers():
            if self._watcher.poll() is not None or time.monotonic() > give_up:
                raise RuntimeError(f"Milvus did not start:\n{(self._folder / 'log').read_text()[-2000:]}")
            time.sleep(0.1)

    def stop(self) -> None:
        """End it at once; what it acknowledged stays on disk."""
        if self._watcher is not None:
            assert self._watcher.stdin is not None
            self._watcher.stdin.close()
            self._watcher.wait()
            self._watcher = None
        (self._folder / "socket").unlink(missing_ok=True)

    def freeze(self) -> None:
        """Make it stand still: connections stay open, nothing answers."""
        os.kill(int((self._folder / "number").read_text()), signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on after `freeze`."""
        os.kill(int((self._folder / "number").read_text()), signal.SIGCONT)

    def close(self) -> None:
        """End it and remove its folder."""
        self.stop()
        self._port.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _answers(self) -> bool:
        from pymilvus import MilvusClient
        from pymilvus.exceptions import MilvusException

        if not (self._folder / "socket").exists():
            return False
        try:
            client = MilvusClient(self.url, timeout=2)
        except MilvusException:
            return False
        try:
            # A collection can only be made once all of its parts have come up.
            client.list_collections()
        except MilvusException:
            return False
        finally:
            client.close()
        return True


@cache
def running_milvus() -> MilvusServer:
    """The one server of this process, started on first use."""
    server = MilvusServer()
    atexit.register(server.close)
    server.start()
    return server
