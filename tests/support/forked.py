"""Processes that are forked from one in which everything is imported, which takes a second or two of each start."""

from __future__ import annotations

import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest

_IMPORTED = (
    "recollect.cli.commands.serve",
    "recollect.http.app",
    "recollect.http.server",
    "recollect.index.exact",
    "recollect.ledger.postgres",
    "recollect.ledger.sqlite",
    "recollect.models.static_embedder",
    "tests.drills.children",
    "tests.support.warm_process",
    "uvicorn.protocols.http.httptools_impl",
    "uvloop",
)


@cache
def fork_context() -> ForkServerContext:
    """Return the context of these processes; the one they are forked from is started on first use."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(_IMPORTED))
    # The process that others are forked from needs the module path in its environment.
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).parents[2]), prepend=os.pathsep)
        forkserver.ensure_running()
    return context


class ForkedCommand:
    """A `recollect` command, or a script, in its own process, with the methods of `subprocess.Popen` that tests use.

    Its errors are written to a file.
    """

    def __init__(self, arguments: Sequence[str], environ: Mapping[str, str], log: Path, *, script: str = "") -> None:
        reader, writer = fork_context().Pipe(duplex=False)
        inputs = (list(arguments), dict(environ), os.getcwd(), writer, log, script)
        # Like any daemon of multiprocessing, it is killed when the tests end.
        self._process = fork_context().Process(target=_run_command, args=inputs, daemon=True)
        self._process.start()
        writer.close()
        self.log = log
        self.stdout = os.fdopen(os.dup(reader.fileno()), encoding="utf-8")
        reader.close()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if (code := self._process.exitcode) is None:
            raise subprocess.TimeoutExpired("recollect", timeout or 0)
        return code

    def send_signal(self, number: signal.Signals) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def run_forked(arguments: Sequence[str], environ: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a `recollect` command to its end, like `subprocess.run`."""
    with tempfile.NamedTemporaryFile() as log:
        command = ForkedCommand(arguments, environ, Path(log.name))
        with command.stdout:
            output = command.stdout.read()
        return subprocess.CompletedProcess(arguments, command.wait(), output, Path(log.name).read_text())


def _run_command(
    arguments: list[str], environ: dict[str, str], folder: str, stdout: Connection, log: Path, script: str
) -> None:
    from recollect.cli.main import main

    os.environ.clear()
    os.environ.update(environ)
    os.chdir(folder)
    tempfile.tempdir = None
    with log.open("wb") as errors:
        os.dup2(errors.fileno(), 2)
    os.dup2(stdout.fileno(), 1)
    stdout.close()
    sys.stdout, sys.stderr = (open(handle, "w", buffering=1, closefd=False) for handle in (1, 2))  # noqa: SIM115
    # Processes of a background shell ignore Ctrl-C; this one must not.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.argv = [script or "recollect", *arguments]
    if script:
        runpy.run_path(script, run_name="__main__")
    else:
        main()
