"""Measure hooks of coding agents as a process and by HTTP, searches by HTTP, and a bare interpreter (`make bench`).

A prompt waits for its recall hook. The server has a repository with memories; each prompt is a question about them.
The rounds alternate, so that the load of the machine is the same for all. The CPU time is that of the server, with
what it does in the background until it answers the next request.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from time import perf_counter
from typing import Any

import httpx

from benchmarks.corpus import questions, sentences
from benchmarks.harness import cpu_seconds, free_port, stop_at_end, summarize, wait_for_port

_PATH = "/recollect/v1/hooks/claude-code"
_PROJECT = "github.com/owner/name"


@dataclass(slots=True)
class _Samples:
    wall_s: list[float] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)


def _measure(rounds: int, calls: dict[str, Callable[[int], None]], server: int) -> dict[str, _Samples]:
    samples = {name: _Samples() for name in calls}
    for number in range(rounds):
        for name, call in calls.items():
            cpu_s, started = cpu_seconds(server), perf_counter()
            call(number)
            samples[name].wall_s.append(perf_counter() - started)
            samples[name].cpu_s.append(cpu_seconds(server) - cpu_s)
    return samples


def main() -> None:
    """Fill a repository, run the hooks, and print the times."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--memories", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--warmup", type=int, default=300, help="Recalls until the memories are indexed.")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        _run(Path(folder), options)


def _run(folder: Path, options: argparse.Namespace) -> None:
    memories, rounds = options.memories, options.rounds
    repository = folder / "repository"
    (repository / ".git").mkdir(parents=True)
    (repository / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    (repository / ".git" / "config").write_text('[remote "origin"]\n\turl = git@github.com:owner/name.git\n')
    asked = list(islice(questions(1), rounds + 1))
    lines = [{"memory": text, "project_id": _PROJECT, "level": "project"} for text in islice(sentences(1), memories)]
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    environ = {**os.environ, "RECOLLECT_HOME": str(folder / "home"), "RECOLLECT_WORKER": "false"}
    command_line = [sys.executable, "-m", "recollect", "serve", "--port", str(port)]
    serving = subprocess.Popen(
        command_line, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environ
    )
    with stop_at_end(serving) as server, httpx.Client(base_url=url, timeout=60) as client:
        wait_for_port(port, server)
        client.post(
            "/recollect/v1/import",
            content="".join(json.dumps(line) + "\n" for line in lines),
            headers={"X-Memory-User": "default", "Content-Type": "application/x-ndjson"},
        ).raise_for_status()
        environ |= {"RECOLLECT_URL": url, "RECOLLECT_HOOK_TIMEOUT_S": "10"}

        def payload(number: int, name: str) -> dict[str, Any]:
            return {"session_id": f"{name} {number}", "cwd": str(repository), "prompt": asked[number]}

        def bare(_: int) -> None:
            subprocess.run([sys.executable, "-c", "pass"], check=True)

        def command(number: int) -> None:
            subprocess.run(
                [sys.executable, "-m", "recollect", "hook", "recall", "--client", "claude-code"],
                input=json.dumps(payload(number, "command")).encode(),
                stdout=subprocess.PIPE,
                env=environ,
                check=True,
            )

        def by_http(number: int) -> None:
            client.post(f"{_PATH}/recall", json=payload(number, "http")).raise_for_status()

        def rest(path: str, body: Callable[[str], dict[str, Any]]) -> Callable[[int], None]:
            headers = {"X-Memory-User": "default", "X-Memory-Project": _PROJECT}

            def call(number: int) -> None:
                client.post(f"/recollect/v1/{path}", json=body(f"{path}: {asked[number]}"), headers=headers)

            return call

        def keep(number: int) -> None:
            event = {**payload(number, "keep"), "last_assistant_message": f"Answer {number}", "prompt": ""}
            client.post(f"{_PATH}/keep", json=event).raise_for_status()

        calls = {
            "python -c pass": bare,
            "recollect hook recall": command,
            "recall by HTTP": by_http,
            "keep by HTTP": keep,
            "POST /search": rest("search", lambda text: {"query": text}),
            "POST /recall": rest("recall", lambda text: {"messages": [{"role": "user", "content": text}]}),
        }
        answer = client.post(f"{_PATH}/recall", json=payload(rounds, "first")).json()
        if "hookSpecificOutput" not in answer:
            raise RuntimeError(f"no memory was recalled for {asked[rounds]!r}")
        for number in range(options.warmup):
            by_http(number % rounds)
        samples = _measure(rounds, calls, server.pid)
    print(f"{memories:,} memories, {rounds} rounds; ms")
    print(f"{'':24}{'min':>8}{'p50':>8}{'p99':>8}{'p50 of the CPU time':>22}")
    for name, own in samples.items():
        wall, cpu = summarize(own.wall_s), summarize(own.cpu_s)
        print(
            f"{name:24}{min(own.wall_s) * 1000:8.1f}{wall.p50_us / 1000:8.1f}{wall.p99_us / 1000:8.1f}"
            f"{cpu.p50_us / 1000:22.1f}"
        )


if __name__ == "__main__":
    main()
