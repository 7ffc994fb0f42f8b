"""Install the clients that `make clients` runs into build/clients: nothing of theirs is needed to use Recollect."""

from __future__ import annotations

import shutil
from pathlib import Path

from scripts.node import node_and_npm, npm_install, pip

ROOT = Path(__file__).parent.parent
NAMED = ROOT / "tests" / "clients"
TARGET = ROOT / "build" / "clients"
VENV = TARGET / "venv"
FRAMEWORKS = TARGET / "frameworks"


def main() -> None:
    """Bring the Python clients, Node if there is none, and the Node clients."""
    shutil.rmtree(TARGET, ignore_errors=True)
    (TARGET / "node").mkdir(parents=True)
    pip(VENV, "-r", str(NAMED / "requirements.txt"))
    pip(FRAMEWORKS, "-r", str(NAMED / "frameworks.txt"))
    shutil.copy(NAMED / "package.json", TARGET / "node" / "package.json")
    _, npm = node_and_npm(VENV)
    npm_install(npm, TARGET / "node")


if __name__ == "__main__":
    main()
