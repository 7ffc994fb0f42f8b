"""Measure the CPU time of commands, and of a server until it answers /health (`make bench`).

Each is a new process with a ledger of a few memories. The smallest of several rounds is printed, next to that of a
bare interpreter; other load only adds to it.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Callable
from functools import partial

from benchmarks.harness import cpu_seconds, free_port, stop_at_end, wait_for_port

_RECOLLECT = (sys.executable, "-m", "recollect")
_COMMANDS = {
    "python -c pass": (sys.executable, "-c", "pass"),
    "recollect --help": (*_RECOLLECT, "--help"),
    "recollect config show": (*_RECOLLECT, "config", "show"),
    "recollect list": (*_RECOLLECT, "list"),
    "recollect search": (*_RECOLLECT, "search", "Where do I live?"),
}


def _run_command(command: tuple[str, ...], environment: dict[str, str]) -> float:
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, command
    return usage.ru_utime + usage.ru_stime


def _start_server(environment: dict[str, str]) -> float:
    port = free_port()
    command = [*_RECOLLECT, "serve", "--port", str(port)]
    with stop_at_end(
        subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    ) as server:
        wait_for_port(port, server)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health") as response:
            assert response.status == 200
        return cpu_seconds(server.pid)


def main() -> None:
    """Run the commands in turn, and print their CPU times."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        environment = {**os.environ, "RECOLLECT_HOME": home}
        # Bytecode is cached in an installation.
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        for text in ("I live in Lisbon", "The trip to Hawaii may cost 10,000 dollars"):
            subprocess.run([*_RECOLLECT, "add", text], env=environment, stdout=subprocess.DEVNULL, check=True)
        calls: dict[str, Callable[[], float]] = {
            name: partial(_run_command, command, environment) for name, command in _COMMANDS.items()
        }
        calls["recollect serve, until /health"] = partial(_start_server, environment)
        rounds = [{name: call() for name, call in calls.items()} for _ in range(options.rounds)]
    for name in calls:
        print(f"{name:32} {min(each[name] for each in rounds):.2f} s of CPU time")


if __name__ == "__main__":
    main()
