"""A server process for tests: start it, stop it, freeze it; it ends with the test process."""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any, TypeVar

# Writes the process id to a file, and ends the server when our end of the pipe closes.
_WATCHED = '"$@" & server=$!; echo $server > "$0"; read _; kill -{signal} $server; wait $server'
_S = TypeVar("_S", bound="ExternalServer")


class ExternalServer:
    """A server with a temporary folder; subclasses define its command and when it is ready."""

    name = "the server"
    start_s = 60.0
    ended_by = "KILL"

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix=f"recollect-{self.name.lower()}-"))
        self._watcher: subprocess.Popen[bytes] | None = None
        # Further arguments of Popen, such as the user.
        self._run_as: dict[str, Any] = {}

    def _command(self) -> list[str]:
        """Return the command that starts it."""
        raise NotImplementedError

    def _answers(self) -> bool:
        """Return whether it is ready."""
        raise NotImplementedError

    def _watched(self) -> list[str]:
        """Return the command that starts it, and ends it when this process ends."""
        number = str(self._folder / "number")
        return ["sh", "-c", _WATCHED.format(signal=self.ended_by), number, *self._command()]

    def start(self) -> None:
        """Start it on its existing data, and wait until it is ready."""
        with (self._folder / "log").open("ab") as log:
            self._watcher = subprocess.Popen(
                self._watched(),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
                **self._run_as,
            )
        give_up = time.monotonic() + self.start_s
        while not self._answers():
            if self._watcher.poll() is not None or time.monotonic() > give_up:
                raise RuntimeError(f"{self.name} did not start:\n{(self._folder / 'log').read_text()[-2000:]}")
            time.sleep(0.02)

    def stop(self) -> None:
        """End it immediately."""
        if self._watcher is not None:
            assert self._watcher.stdin is not None
            self._watcher.stdin.close()
            self._watcher.wait()
            self._watcher = None

    def freeze(self) -> None:
        """Suspend it: connections stay open, nothing answers."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Resume it after `freeze`."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        os.kill(int((self._folder / "number").read_text()), number)

    def close(self) -> None:
        """End it and remove its folder."""
        self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)


def started(server: _S) -> _S:
    """Start a server and return it; it is closed when this process ends."""
    atexit.register(server.close)
    server.start()
    return server
