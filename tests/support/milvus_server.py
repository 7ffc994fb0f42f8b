"""A real Milvus for tests: the server of the wheel milvus, in a folder and a network of its own.

`running_milvus()` starts one on first use and keeps it until the process ends. It can also be stopped and frozen. It
would listen on all interfaces, so it runs where there are none, and is reached through a port of 127.0.0.1.
"""

from __future__ import annotations

import os
import sys
from functools import cache
from importlib.util import find_spec

from tests.support.external_server import ExternalServer, started
from tests.support.relay import LocalPort


class MilvusServer(ExternalServer):
    """A server that only this machine can reach."""

    name = "Milvus"
    start_s = 180.0

    def __init__(self) -> None:
        if find_spec("milvus") is None:
            raise ModuleNotFoundError("a Milvus for tests needs its wheel: pip install milvus")
        super().__init__()
        self._port = LocalPort(self._folder / "socket")

    @property
    def url(self) -> str:
        """Return its address."""
        return f"http://127.0.0.1:{self._port.number}"

    def _watched(self) -> list[str]:
        alone = ["unshare", "-n"] if os.geteuid() == 0 else ["unshare", "-rn"]
        return [*alone, sys.executable, "-m", "tests.support.milvus_process", str(self._folder)]

    def stop(self) -> None:
        """End it immediately; acknowledged data stays on disk."""
        super().stop()
        (self._folder / "socket").unlink(missing_ok=True)

    def close(self) -> None:
        """End it and remove its folder."""
        self._port.close()
        super().close()

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
            # A collection can be created only when all of its parts are ready.
            client.list_collections()
        except MilvusException:
            return False
        finally:
            client.close()
        return True


@cache
def running_milvus() -> MilvusServer:
    """Return the server of this process; it is started on first use."""
    return started(MilvusServer())
