"""Projects of coding agents: find the repository of a folder.

Hooks start a process for each event and import this module, so it imports little and runs no program.
"""

from __future__ import annotations

import os
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

# As model/text.py limits ids.
_MAX_ID_CHARS = 300
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_SECTION = re.compile(r'\s*\[\s*([\w.-]+)(?:\s+"((?:[^"\\]|\\.)*)")?\s*\]')
_VARIABLE = re.compile(r"\s*([A-Za-z][\w-]*)\s*=\s*(.*)")
_URL = re.compile(r"[A-Za-z][\w+.-]*://(?:[^/@]*@)?(\[[^\]]*\]|[^/:]*)(?::\d*)?/*(.*)")
# host:path, as git and ssh read it; one letter is a drive of Windows.
_SSH_PATH = re.compile(r"(?:[^/@]*@)?(\[[^\]]*\]|[^/:@\\]{2,}):(?![\\/]{2})/*(.*)")


class Project:
    """A repository or folder by its id, and the branch checked out in it; both may be empty."""

    __slots__ = ("branch", "id")

    def __init__(self, id: str, branch: str = "") -> None:
        self.id = id
        self.branch = branch

    def __repr__(self) -> str:
        return f"Project({self.id!r}, {self.branch!r})"


def find_project(cwd: Path | str, environ: Mapping[str, str]) -> Project:
    """Return the project of a folder.

    Its id is RECOLLECT_PROJECT, else the remote "origin" such as `github.com/owner/name`, else the repository's main
    folder, else the folder. All worktrees and clones of a repository share one id. The home folder and the root are
    no projects, and a repository in either (dotfiles) is not that of the folders below.
    """
    folder = os.path.realpath(cwd)
    home = environ.get("HOME") or environ.get("USERPROFILE") or os.path.expanduser("~")
    excluded = {os.path.realpath(home), os.path.splitdrive(folder)[0] + os.sep}
    git_dir, top = _find_git_dir(folder, excluded)
    branch = _read_branch(git_dir) if git_dir else ""
    explicit = environ.get("RECOLLECT_PROJECT", "").strip()
    if explicit:
        return Project(_as_id(explicit), branch)
    if git_dir:
        return Project(_as_id(_repository_id(git_dir, top)), branch)
    return Project("" if folder in excluded else _as_id(folder))


def _find_git_dir(folder: str, excluded: set[str]) -> tuple[str, str]:
    """Return the git directory of the innermost repository around a folder and its top folder, or two empty texts."""
    while folder not in excluded:
        path = os.path.join(folder, ".git")
        if os.path.isdir(path):
            return path, folder
        # A worktree or a submodule has a file that names its git directory.
        pointer = _read(path)
        if pointer.startswith("gitdir:"):
            git_dir = os.path.realpath(os.path.join(folder, pointer.removeprefix("gitdir:").strip()))
            if os.path.isdir(git_dir):
                return git_dir, folder
        folder = os.path.dirname(folder)
    return "", ""


def _read_branch(git_dir: str) -> str:
    """Return the branch that HEAD names; empty for a detached HEAD."""
    head = _read(os.path.join(git_dir, "HEAD")).strip()
    branch = head.removeprefix("ref: refs/heads/")
    return "" if branch == head else _as_id(branch)


def _repository_id(git_dir: str, top: str) -> str:
    pointer = _read(os.path.join(git_dir, "commondir")).strip()
    common = os.path.realpath(os.path.join(git_dir, pointer)) if pointer else git_dir
    origin, worktree = _read_config(os.path.join(common, "config"))
    if origin:
        return _normalise_remote(origin, top)
    if os.path.basename(common) == ".git":
        return os.path.dirname(common)
    if worktree:
        # A submodule, or a repository with its git directory elsewhere.
        return os.path.realpath(os.path.join(common, worktree))
    # Worktrees of a bare repository share the repository.
    return common if pointer else top


def _read_config(path: str) -> tuple[str, str]:
    """Return the URL of the remote "origin" and the worktree's folder from a git configuration file."""
    origin = worktree = section = ""
    for line in _read(path).splitlines():
        header = _SECTION.match(line)
        if header:
            section = f"{header[1].lower()}.{header[2]}" if header[2] is not None else header[1].lower()
            line = line[header.end() :]
        variable = _VARIABLE.match(line)
        if variable is None:
            continue
        name = variable[1].lower()
        if section == "remote.origin" and name == "url" and not origin:
            origin = _unquote(variable[2])
        elif section == "core" and name == "worktree":
            worktree = _unquote(variable[2])
    return origin, worktree


def _unquote(value: str) -> str:
    """Return the value of a variable without its comment, quotes and escapes."""
    plain = ""
    is_quoted = False
    position = 0
    while position < len(value):
        character = value[position]
        if character == "\\":
            position += 1
            plain += value[position : position + 1]
        elif character == '"':
            is_quoted = not is_quoted
        elif character in "#;" and not is_quoted:
            break
        else:
            plain += character
        position += 1
    return plain.strip()


def _normalise_remote(url: str, top: str) -> str:
    """Return a remote as host/path without scheme, credentials, port and .git; a local one as a path."""
    is_file = url.lower().startswith("file://")
    parts = None if is_file else _URL.fullmatch(url) or _SSH_PATH.fullmatch(url)
    if parts is None:
        path = os.path.realpath(os.path.join(top, url[len("file://") :] if is_file else url))
        return os.path.dirname(path) if os.path.basename(path) == ".git" else path
    path = parts[2].rstrip("/").removesuffix(".git").rstrip("/")
    return f"{parts[1]}/{path}".lower().rstrip("/")


def _as_id(text: str) -> str:
    """Return the text as a valid id: without control characters, and not too long."""
    text = _CONTROL.sub("\ufffd", text)
    if len(text) <= _MAX_ID_CHARS:
        return text
    from hashlib import sha256

    digest = sha256(text.encode()).hexdigest()
    return f"{text[: _MAX_ID_CHARS - len(digest) - 1]}~{digest}"


def _read(path: str) -> str:
    """Return the beginning of a small text file; empty if it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(1 << 20)
    except OSError:
        return ""
