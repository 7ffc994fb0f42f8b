"""Other proxies for the same upstream, each in its own virtual environment."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_LITELLM = """\
model_list:
  - {{model_name: "*", litellm_params: {{model: "openai/*", api_base: "{upstream}", api_key: none}}}}
litellm_settings: {{telemetry: false}}
"""
# It downloads a cross-encoder when it starts; it is measured without, which can only make it faster.
_AGENT_CLI = """\
import sys
import agent_cli.core.reranker as reranker
reranker.get_reranker_model = lambda *_: type("None", (), {"predict": lambda self, pairs: [0.0] * len(pairs)})()
from agent_cli.cli import app
sys.argv[0] = "agent-cli"
app()
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """A proxy: its package, command and environment."""

    name: str
    package: str
    command: Callable[[Path, int, str], Sequence[str]]
    environment: Mapping[str, str]

    def version(self, folder: Path) -> str:
        """Return the version in the folder, after installing it if needed; raise OSError if that fails."""
        python = folder / self.name / "bin" / "python"
        try:
            if not python.exists():
                subprocess.run([sys.executable, "-m", "venv", str(folder / self.name)], check=True)
                subprocess.run([str(python), "-m", "pip", "install", "--quiet", self.package], check=True)
            report = "import importlib.metadata as m, sys; print(m.version(sys.argv[1]))"
            results = subprocess.run(
                [str(python), "-c", report, self.name], check=True, capture_output=True, text=True
            )
        except subprocess.CalledProcessError as error:
            raise OSError(f"{self.package} cannot be installed: {error}") from error
        return results.stdout.strip()

    def start(self, folder: Path, home: Path, port: int, upstream: str) -> subprocess.Popen[bytes]:
        """Start its server."""
        home.mkdir(parents=True)
        program, *options = self.command(home, port, upstream)
        with (home / "log").open("wb") as log:
            return subprocess.Popen(
                [str(folder / self.name / "bin" / program), *options],
                env={**os.environ, "HOME": str(home), "OPENAI_API_KEY": "none", **self.environment},
                cwd=home, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip


def _litellm(home: Path, port: int, upstream: str) -> Sequence[str]:
    (home / "config.yaml").write_text(_LITELLM.format(upstream=upstream))
    return ("litellm", "--config", "config.yaml", "--host", "127.0.0.1", "--port", str(port))


def _agent_cli(home: Path, port: int, upstream: str) -> Sequence[str]:
    return (
        "python", "-c", _AGENT_CLI, "memory", "proxy", "--memory-path", str(home / "memory"), "--no-git-versioning",
        "--openai-base-url", upstream, "--openai-api-key", "none", "--host", "127.0.0.1", "--port", str(port),
    )  # fmt: skip


_OPEN = {"LITELLM_LOG": "ERROR", "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true"}
PEERS = (
    Peer(name="litellm", package="litellm[proxy]", command=_litellm, environment=_OPEN),
    Peer(name="agent-cli", package="agent-cli[memory]", command=_agent_cli, environment={}),
)
