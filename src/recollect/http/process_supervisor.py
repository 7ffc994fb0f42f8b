"""The supervisor of several server processes on one port: starts, replaces and stops them."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from multiprocessing.connection import wait
from multiprocessing.context import SpawnProcess
from types import FrameType

from recollect.config.settings import Settings
from recollect.errors import Unavailable
from recollect.http.sockets import BoundSockets

_log = logging.getLogger("recollect")
_spawn = multiprocessing.get_context("spawn")
# The time a process needs to stop in addition to its requests: to close the ledger and end jobs.
_GRACE_S = 15.0
_TICK_S = 0.2


class ProcessSupervisor:
    """Runs `server_processes` processes; replaces one that dies and forwards signals to all of them."""

    def __init__(self, work: Callable[[], None], listening: BoundSockets, settings: Settings) -> None:
        self._work = work
        self._listening = listening
        self._settings = settings
        self._running: list[SpawnProcess] = []
        self._stopping_at = 0.0

    def run(self) -> None:
        """Serve until a signal arrives; Unavailable if the processes cannot start."""
        previous = {number: signal.signal(number, self._handle_signal) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            for _ in range(self._settings.server_processes):
                self._start()
            while self._running:
                wait([process.sentinel for process in self._running], timeout=_TICK_S)
                self._reap()
        except BaseException:
            self._kill_all()
            raise
        finally:
            self._listening.close()
            for number, handler in previous.items():
                signal.signal(number, handler)

    def _start(self) -> None:
        # A signal may arrive between two starts.
        if not self._stopping_at:
            process = _spawn.Process(target=self._work)
            process.start()
            self._running.append(process)
            if self._stopping_at:
                process.terminate()

    def _reap(self) -> None:
        if self._stopping_at:
            # The port is free only when this process has closed it as well.
            self._listening.close()
        for process in list(self._running):
            if process.is_alive():
                continue
            process.join()
            self._running.remove(process)
            if self._stopping_at:
                continue
            # A process that was killed is replaced; one that exited with an error would fail again.
            if (process.exitcode or 0) > 0:
                raise Unavailable("the server could not start; its log has the reason")
            _log.warning("server process %s ended with %s; starting another", process.pid, process.exitcode)
            self._start()
        timeout_s = self._settings.stop_within_s + _GRACE_S
        if self._stopping_at and time.monotonic() - self._stopping_at > timeout_s:
            self._kill_all()

    def _handle_signal(self, number: int, frame: FrameType | None) -> None:
        """Stop all processes; a second signal ends them at once."""
        if self._stopping_at:
            self._kill_all()
            os._exit(128 + number)
        self._stopping_at = time.monotonic()
        for process in list(self._running):
            process.terminate()

    def _kill_all(self) -> None:
        for process in list(self._running):
            process.kill()


def stop_when_orphaned() -> None:
    """Wait until the parent process is gone, then stop this one."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)
