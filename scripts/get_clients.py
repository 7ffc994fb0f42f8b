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
    """Bring the Python clients, Node if there is none, the Node clients and coding agents."""
    shutil.rmtree(TARGET, ignore_errors=True)
    TARGET.mkdir(parents=True)
    pip(VENV, "-r", str(NAMED / "requirements.txt"))
    pip(FRAMEWORKS, "-r", str(NAMED / "frameworks.txt"))
    _, npm = node_and_npm(VENV)
    for name, packages in {"node": "package.json", "agents": "agents.json"}.items():
        (TARGET / name).mkdir()
        shutil.copy(NAMED / packages, TARGET / name / "package.json")
        npm_install(npm, TARGET / name)


if __name__ == "__main__":
    main()
