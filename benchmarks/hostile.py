"""Measure a small client's latency without and with another client that sends the worst requests (`make bench`).

For each kind of request the small client chats and searches one request at a time; in every second round another
process sends large requests of four other users meanwhile, one after the other; later kinds meet what earlier ones
stored. All processes share the machine, so that latencies grow with its load. Two figures do not: the CPU time of the
server during a request of the small client, which is its latency on a machine with nothing else to do (needs Linux),
and for how long the server's event loop was held (`benchmarks.hostile_server`).
"""

from __future__ import annotations

import argparse
import http.client
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, perf_counter
from typing import Any

from benchmarks.harness import free_port, module_process, stop_at_end, summarize, wait_for_port

_API = "/recollect/v1"
_CHAT = "/v1/chat/completions"
_MEBIBYTE = 1 << 20
_PASSWORDS, _CARDS, _WORDS = "password is ", "4111 1111 1111 1112 ", "I like green tea. "
_PINS, _LINES_OF_ONE, _ACCENTS = "my pin is 4821 ", "a\n", "é"
_JSON, _LINES = "application/json", "application/x-ndjson"


def _chat(*texts: str) -> dict[str, Any]:
    return {"model": "quick", "messages": [{"role": "user", "content": text} for text in texts]}


def _fill(unit: str, size: float) -> str:
    return unit * int(size * _MEBIBYTE / len(unit.encode()))


# By name: the path, and the body for a limit of so many MiB.
HOSTILE: dict[str, tuple[str, Callable[[float], Any]]] = {
    "chat, passwords": (_CHAT, lambda mb: _chat(_fill(_PASSWORDS, min(mb, 2)))),
    "chat, cards": (_CHAT, lambda mb: _chat(_fill(_CARDS, mb))),
    "chat, messages": (_CHAT, lambda mb: _chat(*[_WORDS] * int(mb * 3_000))),
    "chat, numbers": (_CHAT, lambda mb: {**_chat("Hi"), "x": [1] * int(mb * 300_000)}),
    "Responses": ("/v1/responses", lambda mb: {"model": "quick", "input": _fill(_PASSWORDS, min(mb, 2))}),
    "remember": (f"{_API}/remember", lambda mb: {"messages": _fill(_PASSWORDS, min(mb, 2))}),
    "add": (f"{_API}/memories", lambda mb: {"content": _fill(_CARDS, min(mb, 0.99))}),
    "add, no spaces": (f"{_API}/memories", lambda mb: {"content": _fill(_ACCENTS, min(mb, 0.99))}),
    "add, metadata": (
        f"{_API}/memories",
        lambda mb: {"content": "x", "metadata": {"notes": [f"password is a{n}" for n in range(int(mb * 20_000))]}},
    ),
    "import": (
        f"{_API}/import",
        lambda mb: [{"memory": f"{n}\n{_fill(_LINES_OF_ONE, min(mb, 0.99))}"} for n in range(max(1, int(mb)))],
    ),
    "search": (f"{_API}/search", lambda mb: {"query": _fill(_WORDS, min(mb, 0.99))}),
    "recall": (f"{_API}/recall", lambda mb: {"messages": _fill(_WORDS, min(mb, 4))}),
    # The last one: redacting these goes on for long after the answer.
    "chat, pins": (_CHAT, lambda mb: _chat(_fill(_PINS, min(mb, 1)))),
}


def post(port: int, path: str, body: bytes, *, user: str, kind: str = _JSON) -> int:
    """Send a request as a user, and return the status."""
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
    try:
        client.request("POST", path, body, {"content-type": kind, "x-memory-user": user})
        answer = client.getresponse()
        answer.read()
        return answer.status
    finally:
        client.close()


def send_hostile(port: int, name: str, megabytes: float) -> None:
    """Send one kind of request until this process is ended; fail unless it is answered, or refused as too large."""
    path, make = HOSTILE[name]
    value = make(megabytes)
    is_lines = isinstance(value, list)
    raw = "\n".join(map(json.dumps, value)).encode() if is_lines else json.dumps(value).encode()
    number = 0
    while True:
        status = post(port, path, raw, user=f"hostile-{number % 4}", kind=_LINES if is_lines else _JSON)
        if status >= 500:
            raise RuntimeError(f"{name}: the server answered {status}")
        if not number:
            print("answered", flush=True)
        number += 1


@contextmanager
def hostile_client(port: int, name: str, megabytes: float) -> Iterator[subprocess.Popen[bytes]]:
    """Run a process that sends hostile requests; the first one is answered when the block begins."""
    command = [sys.executable, "-m", "benchmarks.hostile", "--send", name, str(port), "--megabytes", str(megabytes)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
    finally:
        process.kill()
        process.wait()


@dataclass(frozen=True, slots=True)
class Latencies:
    """How long requests took, and for how long the server computed meanwhile."""

    server_pid: int
    took_s: list[float] = field(default_factory=list)
    computed_s: list[float] = field(default_factory=list)

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Note how long the block takes."""
        # The clock of the CPU time of another process, as clock_getcpuclockid(3) returns it on Linux.
        clock = ~self.server_pid << 3 | 2
        started, computed = perf_counter(), time.clock_gettime(clock)
        yield
        self.took_s.append(perf_counter() - started)
        self.computed_s.append(min(self.took_s[-1], time.clock_gettime(clock) - computed))


def small_requests(port: int, seconds: float, latencies: Latencies) -> None:
    """Chat and search for so long, one request at a time, and note how long each takes."""
    requests = (
        (_CHAT, json.dumps(_chat("What is my budget for the trip?")).encode()),
        (f"{_API}/search", json.dumps({"query": "budget for the trip"}).encode()),
    )
    ends_at = monotonic() + seconds
    while monotonic() < ends_at or len(latencies.took_s) < len(requests):
        for path, body in requests:
            with latencies.noted():
                status = post(port, path, body, user="small")
            if status != 200:
                raise RuntimeError(f"{path} answered {status}")


def read_held_ms(port: int) -> list[float]:
    """Return for how long each iteration of the server's loop was held since the last call."""
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
    try:
        client.request("GET", "/held")
        return list(json.load(client.getresponse())["held_ms"])
    finally:
        client.close()


def measure(server_pid: int, port: int, name: str, args: argparse.Namespace) -> None:
    """Print the latency of the small client without and with one kind of hostile request."""
    alone, beside, held_ms = Latencies(server_pid), Latencies(server_pid), list[float]()
    for _ in range(args.rounds):
        small_requests(port, args.seconds, alone)
        with hostile_client(port, name, args.megabytes) as process:
            read_held_ms(port)
            small_requests(port, args.seconds, beside)
            if process.poll() is not None:
                raise RuntimeError(f"{name}: the hostile client ended with {process.returncode}")
            held_ms += read_held_ms(port)
    print(
        f"{name:15} computed: {describe(alone.computed_s, beside.computed_s)}   "
        f"latency: {describe(alone.took_s, beside.took_s)}   "
        f"held: p99 {summarize(held_ms).p99_us / 1e6:5.1f} longest {max(held_ms):5.1f} ms",
        flush=True,
    )


def describe(alone_s: list[float], beside_s: list[float]) -> str:
    """Describe latencies without and with hostile requests, in milliseconds."""
    alone, beside = summarize(alone_s), summarize(beside_s)
    growth_ms = (beside.p99_us - alone.p99_us) / 1e3
    return (
        f"p50 {alone.p50_us / 1e3:5.1f} -> {beside.p50_us / 1e3:5.1f} "
        f"p99 {alone.p99_us / 1e3:5.1f} -> {beside.p99_us / 1e3:5.1f} ({growth_ms:+6.1f} ms)"
    )


def main() -> None:
    """Start a server, and measure each kind of request on it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kinds", default=",".join(HOSTILE).replace(", ", "; "), help="some of them; commas between")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=2, help="of each kind")
    parser.add_argument("--megabytes", type=float, default=31.0, help="of a hostile request at most")
    parser.add_argument("--send", nargs=2, metavar=("KIND", "PORT"), help="send one kind of request to a server")
    args = parser.parse_args()
    if args.send:
        send_hostile(int(args.send[1]), args.send[0], args.megabytes)
        return
    with tempfile.TemporaryDirectory(prefix="recollect-bench-") as folder, ExitStack() as parts:
        upstream_port, port = free_port(), free_port()
        upstream = parts.enter_context(module_process("benchmarks.proxy_upstream", str(upstream_port)))
        wait_for_port(upstream_port, upstream)
        command = [sys.executable, "-m", "benchmarks.hostile_server", str(Path(folder) / "home"), str(port)]
        command += [f"http://127.0.0.1:{upstream_port}/v1"]
        server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        parts.enter_context(stop_at_end(server))
        wait_for_port(port, server)
        small_requests(port, 1.0, Latencies(server.pid))
        for name in args.kinds.split(","):
            measure(server.pid, port, name.replace("; ", ", ").strip(), args)


if __name__ == "__main__":
    main()
