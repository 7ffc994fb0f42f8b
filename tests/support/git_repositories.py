"""Real git repositories for tests."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path


def git(folder: Path, *arguments: str) -> None:
    """Run git without the configuration of the machine."""
    config = "-c user.name=a -c user.email=a@b.c -c protocol.file.allow=always".split()
    environ = {"PATH": os.environ["PATH"], "HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1"}
    subprocess.run(["git", *config, *arguments], cwd=folder, check=True, capture_output=True, env=environ)


def make_repository(folder: Path, remote: str = "") -> Path:
    """Make a repository with one commit on the branch main."""
    folder.mkdir(parents=True)
    git(folder, "init", "-q")
    git(folder, "symbolic-ref", "HEAD", "refs/heads/main")
    git(folder, "commit", "-q", "--allow-empty", "-m", "start")
    if remote:
        git(folder, "remote", "add", "origin", remote)
    return folder
