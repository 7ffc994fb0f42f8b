"""The products that `benchmarks.peers` compares: how each is installed, opened as a store and started as a proxy."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.harness import cpu_seconds, free_port, stop_at_end, wait_for_port
from benchmarks.peer_store import HAS_EXTENSIONS

_ROOT = Path(__file__).parent.parent
_STORE = Path(__file__).with_name("peer_store.py")
_COMMAND_S, _START_S, _INSTALL_S = 300, 120, 900
# Nothing is downloaded or reported while it is measured.
_NO_NETWORK = {"ANONYMIZED_TELEMETRY": "False", "HF_HUB_OFFLINE": "1", "LANGSMITH_TRACING": "false"}
# A key would make Recollect learn with the upstream instead of with its own models; an HTTP proxy slows clients down.
_IGNORED = re.compile(r"OPENAI_|RECOLLECT_|.*_proxy$", re.IGNORECASE)
_SIZES = """
import importlib.metadata as metadata, json, os, sys
version = metadata.version(sys.argv[1])
dists = [each for each in metadata.distributions() if each.name not in ("pip", "setuptools")]
files = {str(file.locate()) for each in dists for file in each.files or () if "__pycache__" not in str(file)}
size = sum(os.path.getsize(file) for file in files if os.path.isfile(file))
print(json.dumps([version, len(dists), size / 2**20]))
"""
_LITELLM = """\
model_list:
  - {{model_name: "*", litellm_params: {{model: "openai/*", api_base: "{upstream}", api_key: none}}}}
litellm_settings: {{telemetry: false}}
"""
# Without its cross-encoder, which it would download.
_AGENT_CLI = """\
import sys
sys.path.append(sys.argv.pop(1))
from peer_store import NoReranker
import agent_cli.core.reranker as reranker
reranker.get_reranker_model = lambda *_: NoReranker()
from agent_cli.cli import app
sys.argv[0] = "agent-cli"
app()
"""


class PeerError(Exception):
    """A product could not be installed or failed; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """A product, its distribution and the requirements to install, and its stores with their titles and its proxy."""

    name: str
    title: str
    distribution: str
    requirements: Sequence[str]
    stores: Mapping[str, str] = field(default_factory=dict)
    proxy: Callable[[Path, int, str], Sequence[str]] | None = None
    variables: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """A product as installed."""

    product: Product
    python: Path
    version: str
    packages: int
    mib: float

    def popen(self, arguments: Sequence[str], home: Path, **streams: Any) -> subprocess.Popen[bytes]:
        """Run its interpreter in a folder of its own; errors go to a log there."""
        home.mkdir(parents=True, exist_ok=True)
        variables = {name: value for name, value in os.environ.items() if not _IGNORED.match(name)}
        variables |= {**_NO_NETWORK, **self.product.variables, "HOME": str(home), "RECOLLECT_HOME": str(home)}
        if self.python != Path(sys.executable):
            variables.pop("PYTHONPATH", None)
        with (home / "log").open("ab") as log:
            streams = {"stdin": subprocess.DEVNULL, "stdout": log, **streams}
            return subprocess.Popen([self.python, *arguments], cwd=home, env=variables, stderr=log, **streams)


def install(product: Product, folder: Path | None) -> Environment:
    """Return the product's environment in the folder, made if needed; without a folder this interpreter's."""
    python = Path(sys.executable)
    if folder is not None:
        home = folder / product.name
        python, stamp = home / "bin" / "python", home / "installed"
        wanted = "\n".join(product.requirements)
        if not stamp.exists() or stamp.read_text() != wanted:
            _check([sys.executable, "-m", "venv", "--clear", str(home)])
            _check([str(python), "-m", "pip", "install", "--quiet", *product.requirements])
            stamp.write_text(wanted)
        elif str(_ROOT) in product.requirements:
            _check([str(python), "-m", "pip", "install", "--quiet", "--force-reinstall", "--no-deps", str(_ROOT)])
    version, packages, mib = json.loads(_check([str(python), "-c", _SIZES, product.distribution]))
    return Environment(product=product, python=python, version=version, packages=packages, mib=mib)


def _check(command: Sequence[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_INSTALL_S)
    except subprocess.TimeoutExpired as error:
        raise PeerError(f"not installed after {_INSTALL_S} s") from error
    if done.returncode:
        raise PeerError("not installed: " + _last_line(done.stderr))
    return done.stdout


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else "no message"


class StoreWorker:
    """A process that stores and searches memories with one product; use it in a `with`."""

    def __init__(self, environment: Environment, store: str, folder: Path, data: Path) -> None:
        self._folder = folder
        arguments = ["-P", str(_STORE), store, str(folder), str(data)]
        streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self._process = environment.popen(arguments, folder, **streams)

    def __enter__(self) -> StoreWorker:
        return self

    def __exit__(self, *_: object) -> None:
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def run(self, command: str, texts: Sequence[str]) -> Any:
        """Run a command of `peer_store` and return its result."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        timer = threading.Timer(_COMMAND_S, self._process.kill)
        timer.start()
        try:
            self._process.stdin.write(json.dumps([command, texts]).encode() + b"\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
        except BrokenPipeError:
            answer = b""
        finally:
            timer.cancel()
        if not answer:
            was_killed = self._process.wait(30) == -signal.SIGKILL
            reason = f"no result in {_COMMAND_S} s" if was_killed else _last_line((self._folder / "log").read_text())
            raise PeerError(f"{command}: {reason}")
        return json.loads(answer)


def search_once(environment: Environment, store: str, folder: Path, data: Path, question: str) -> float:
    """Return the CPU time of a process that opens a store, searches once and ends."""
    command = folder / "command"
    command.write_text(json.dumps(["search", [question]]) + "\n")
    with command.open("rb") as stdin:
        arguments = ["-P", str(_STORE), store, str(folder), str(data)]
        process = environment.popen(arguments, folder, stdin=stdin)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise PeerError("start: " + _last_line((folder / "log").read_text()))
    return usage.ru_utime + usage.ru_stime


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyServer:
    """A running proxy, and how long it took to its first answer."""

    port: int
    process: int
    start_s: float
    start_cpu_s: float


@contextmanager
def running_proxy(environment: Environment, home: Path, upstream: str) -> Iterator[ProxyServer]:
    """Start the product's proxy for the upstream, and wait until it answers a chat."""
    assert environment.product.proxy is not None
    port, started = free_port(), time.perf_counter()
    home.mkdir(parents=True, exist_ok=True)
    arguments = environment.product.proxy(home, port, upstream)
    with stop_at_end(environment.popen(arguments, home)) as process:
        try:
            wait_for_port(port, process)
            chat_once(port)
        except OSError as error:
            raise PeerError(f"start: {error}: {_last_line((home / 'log').read_text())}") from error
        taken_s, cpu_s = time.perf_counter() - started, cpu_seconds(process.pid)
        yield ProxyServer(port=port, process=process.pid, start_s=taken_s, start_cpu_s=cpu_s)


def chat_once(port: int) -> None:
    """Send one chat; raise OSError unless it is answered."""
    body = {"model": "quick", "user": "first", "messages": [{"role": "user", "content": "Where is Ana?"}]}
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/chat/completions",
        data=json.dumps(body).encode(),
        headers={"content-type": "application/json", "authorization": "Bearer none"},
    )
    with urllib.request.urlopen(request, timeout=_START_S):
        pass


def _serve_recollect(home: Path, port: int, upstream: str) -> Sequence[str]:
    return ("-m", "recollect", "serve", "--upstream", upstream, "--no-access-log", "--port", str(port))


def _serve_litellm(home: Path, port: int, upstream: str) -> Sequence[str]:
    (home / "config.yaml").write_text(_LITELLM.format(upstream=upstream))
    program = "import sys; from litellm import run_server; sys.argv[0] = 'litellm'; run_server()"
    return ("-c", program, "--config", "config.yaml", "--host", "127.0.0.1", "--port", str(port))


def _serve_agent_cli(home: Path, port: int, upstream: str) -> Sequence[str]:
    return (
        "-c", _AGENT_CLI, str(_STORE.parent), "memory", "proxy", "--memory-path", str(home), "--max-entries", "0",
        "--no-git-versioning", "--openai-base-url", upstream, "--openai-api-key", "none", "--log-level", "warning",
        "--host", "127.0.0.1", "--port", str(port),
    )  # fmt: skip


_OPEN = {
    "LITELLM_LOG": "ERROR",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",
}
PRODUCTS = (
    Product(
        name="recollect",
        title="Recollect",
        distribution="recollect",
        requirements=(str(_ROOT),),
        stores={"recollect": "Recollect"},
        proxy=_serve_recollect,
        # As its own commands set it; and no chat goes on without memory, however slow the machine is.
        variables={"OPENBLAS_NUM_THREADS": "1", "RECOLLECT_MEMORY_TIMEOUT_S": "60"},
    ),
    Product(
        name="mem0",
        title="mem0",
        distribution="mem0ai",
        requirements=("mem0ai",),
        stores={"mem0": "mem0"},
    ),
    Product(
        name="agent-cli",
        title="agent-cli",
        distribution="agent-cli",
        requirements=("agent-cli[memory]",),
        stores={"agent-cli": "agent-cli"},
        proxy=_serve_agent_cli,
    ),
    Product(
        name="langgraph",
        title="LangGraph",
        distribution="langgraph",
        requirements=(
            "langgraph",
            "langgraph-checkpoint-sqlite",
            "numpy",
            *(() if HAS_EXTENSIONS else ("pysqlite3-binary",)),
        ),
        stores={"langgraph": "LangGraph SqliteStore", "langgraph-in-memory": "LangGraph InMemoryStore"},
    ),
    Product(
        name="chroma",
        title="Chroma",
        distribution="chromadb",
        requirements=("chromadb",),
        stores={"chroma": "Chroma"},
    ),
    Product(
        name="litellm",
        title="LiteLLM",
        distribution="litellm",
        requirements=("litellm[proxy]",),
        proxy=_serve_litellm,
        variables=_OPEN,
    ),
)
