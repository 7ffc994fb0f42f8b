"""The git repository of the folder: commits, and erasure from its whole history.

Erasure exports the history to a new repository without what was erased.
"""

from __future__ import annotations

import ast
import logging
import os
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from recollect.errors import StoreUnavailable, Unsupported
from recollect.mirror.layout import CONFLICTS, ENTRIES, MEMORIES, MEMORY_FOLDERS, SUMMARY, USERS

_log = logging.getLogger("recollect")
_NAME, _EMAIL = "Recollect", "recollect@localhost"
# Only memories are versioned; the folder may have a database, keys and logs, too.
_EXCLUDE = f"/*\n!/{ENTRIES}/\n!/{MEMORIES}/\n!/{CONFLICTS}/\n!/{USERS}/\nmemory_index.json\n.recollect*\n"
_TIMEOUT_S = 600
_MAX_EXCLUDED = 1000
_SAFE_OPTIONS = (
    *("-c", f"user.name={_NAME}", "-c", f"user.email={_EMAIL}", "-c", "core.hooksPath=/dev/null"),
    *("-c", "commit.gpgSign=false", "-c", "gc.auto=0", "-c", "core.logAllRefUpdates=false"),
    *("-c", "core.autocrlf=false", "-c", "core.fsync=all", "-c", "core.fileMode=false", "-c", "core.symlinks=true"),
)
_EXPORT_COMMAND = (
    "fast-export",
    "--all",
    "--signed-tags=strip",
    "--tag-of-filtered-object=rewrite",
    "--reencode=yes",
)
_IMPORT_COMMAND = ("fast-import", "--quiet", "--force", "--done")


@dataclass(slots=True)
class _ErasureFilter:
    """Copies a fast-export stream without blobs that contain an id, paths, folders, and all summaries.

    A summary may mention anything that was erased. `commits` counts the changed commits.
    """

    ids: Sequence[bytes]
    paths: set[str]
    below: tuple[str, ...]
    erased_blobs: set[bytes] = field(default_factory=set)
    commits: int = 0

    def copy(self, source: IO[bytes], target: IO[bytes]) -> None:
        is_counted = False
        while line := source.readline():
            if line == b"blob\n":
                self._copy_blob(source, target)
            elif line.startswith(b"data "):
                target.write(line + source.read(int(line[5:])))
            elif line.startswith(b"M ") and self._erases(line):
                self.commits += not is_counted
                is_counted = True
            else:
                is_counted = is_counted and not line.startswith(b"commit ")
                target.write(line)

    def _copy_blob(self, source: IO[bytes], target: IO[bytes]) -> None:
        mark = size = source.readline()
        while not size.startswith(b"data "):
            size = source.readline()
        data = source.read(int(size[5:])) + source.readline()
        if any(id in data for id in self.ids):
            self.erased_blobs.add(mark.split()[1])
        else:
            target.write(b"blob\n" + mark + size + data)

    def _erases(self, line: bytes) -> bool:
        _, _, mark, name = line.rstrip(b"\n").split(b" ", 3)
        path = _unquote_path(name)
        is_summary = path.endswith(f"/summaries/{SUMMARY}.md") and ENTRIES in path
        return is_summary or mark in self.erased_blobs or path in self.paths or path.startswith(self.below)


def _unquote_path(name: bytes) -> str:
    """Return a path that git may have quoted."""
    if not name.startswith(b'"'):
        return name.decode()
    unquoted: bytes = ast.literal_eval(f"b{name.decode()}")
    return unquoted.decode(errors="replace")


class GitRepository:
    """The git repository of a folder."""

    def __init__(self, root: Path) -> None:
        self._root, self.folder = root, root / ".git"
        program = shutil.which("git")
        if program is None:
            raise Unsupported("git is not installed; install it, or set mirror_git = false")
        self._program = program

    def initialize(self) -> None:
        """Create the repository if there is none, and finish an interrupted erasure."""
        new, old = self._root / ".git.new", self._root / ".git.old"
        if not self.folder.exists() and (new / "complete").exists():
            self._swap(new)
        elif not self.folder.exists() and old.exists():
            os.rename(old, self.folder)
        for leftover in (new, old):
            shutil.rmtree(leftover, ignore_errors=True)
        if not self.folder.exists():
            self._run("init", "-q", "-b", "main")
        elif not self.folder.is_dir() or self.folder.is_symlink():
            raise StoreUnavailable(f"{self.folder} must be a folder, since the mirror owns its repository")
        self._exclude(self.folder)
        (self.folder / "index.lock").unlink(missing_ok=True)

    def commit_all(self, message: str, *, excluding: Sequence[str] = ()) -> bool:
        """Commit all changes except those of some paths."""
        folders = [name for name in (*MEMORY_FOLDERS, CONFLICTS) if (self._root / name).is_dir()]
        if folders:
            # git does not know folders without files.
            excluded = [f":(exclude,literal){path}" for path in excluding[:_MAX_EXCLUDED]]
            self._run("add", "-A", "--", *folders, *excluded)
        return self._commit(message)

    def commit(self, paths: Iterable[str], message: str) -> bool:
        """Commit these paths, written or removed; return whether there was anything to commit."""
        listed = b"".join(path.encode() + b"\0" for path in dict.fromkeys(paths))
        self._run("update-index", "--add", "--remove", "--replace", "-z", "--stdin", stdin=listed)
        return self._commit(message)

    def _commit(self, message: str) -> bool:
        tree = self._run("write-tree").decode().strip()
        head = self.head()
        if head is not None and self._run("rev-parse", f"{head}^{{tree}}").decode().strip() == tree:
            return False
        if head is None and not self._run("ls-tree", tree):
            return False
        parents = ("-p", head) if head else ()
        commit = self._run("commit-tree", tree, *parents, stdin=message.encode()).decode().strip()
        self._run("update-ref", "HEAD", commit)
        return True

    def head(self) -> str | None:
        """Return the last commit."""
        commit = self._run("rev-parse", "-q", "--verify", "HEAD", may_fail=True).decode().strip()
        return commit or None

    def erase(self, ids: Iterable[str], paths: Iterable[str], *, below: Sequence[str] = ()) -> int:
        """Remove memories from the whole history, by ids, paths and folders; return how many commits changed.

        The rest is written to a new repository that replaces the old one, so that nothing is left in packs or logs.
        """
        if self.head() is None:
            return 0
        erasure = _ErasureFilter([id.encode() for id in ids], set(paths), tuple(below))
        try:
            self._rewrite(erasure)
            return erasure.commits
        except StoreUnavailable as error:
            # The history is optional; erasure is not.
            _log.warning("mirror: the git history is dropped, since it could not be rewritten: %s", error)
            count = int(self._run("rev-list", "--all", "--count") or 0)
            shutil.rmtree(self.folder)
            self.initialize()
            self.commit_all("Go on after an erasure")
            return count

    def _rewrite(self, erasure: _ErasureFilter) -> None:
        new = self._root / ".git.new"
        shutil.rmtree(new, ignore_errors=True)
        self._run("init", "-q", "--bare", "-b", "main", str(new), bare=True)
        environment = _git_environment(self._root)
        source, target = ([self._program, f"--git-dir={folder}", *_SAFE_OPTIONS] for folder in (self.folder, new))
        with (
            subprocess.Popen([*source, *_EXPORT_COMMAND], stdout=subprocess.PIPE, env=environment) as exporting,  # noqa: S603 - as below
            subprocess.Popen([*target, *_IMPORT_COMMAND], stdin=subprocess.PIPE, env=environment) as importing,  # noqa: S603 - as below
        ):
            assert exporting.stdout is not None
            assert importing.stdin is not None
            with suppress(BrokenPipeError):
                erasure.copy(exporting.stdout, importing.stdin)
                importing.stdin.write(b"done\n")
                importing.stdin.close()
            if exporting.wait() or importing.wait():
                raise StoreUnavailable("git could not rewrite the history; the old one is unchanged")
        # Objects that no commit refers to were copied too.
        for arguments in (("repack", "-a", "-d", "-q"), ("prune", "--expire=now")):
            self._run(f"--git-dir={new}", *arguments, bare=True)
        for name in ("HEAD", "config", "info", "hooks"):
            _copy_path(self.folder / name, new / name)
        self._exclude(new)
        (new / "complete").touch()
        self._swap(new)
        self._run("read-tree", "HEAD", may_fail=True)
        self.commit_all("Go on after an erasure")

    def _swap(self, new: Path) -> None:
        old = self._root / ".git.old"
        shutil.rmtree(old, ignore_errors=True)
        if self.folder.exists():
            os.rename(self.folder, old)
        os.rename(new, self.folder)
        (self.folder / "complete").unlink(missing_ok=True)
        shutil.rmtree(old, ignore_errors=True)

    def _exclude(self, folder: Path) -> None:
        info = folder / "info"
        info.mkdir(exist_ok=True)
        exclude = info / "exclude"
        if not exclude.exists() or exclude.read_text(errors="replace") != _EXCLUDE:
            exclude.write_text(_EXCLUDE)

    def _run(self, *arguments: str, stdin: bytes = b"", may_fail: bool = False, bare: bool = False) -> bytes:
        location = () if bare else (f"--git-dir={self.folder}", f"--work-tree={self._root}")
        try:
            done = subprocess.run(  # noqa: S603 - our own arguments, and no shell
                [self._program, *location, *_SAFE_OPTIONS, *arguments],
                cwd=self._root,
                input=stdin,
                capture_output=True,
                timeout=_TIMEOUT_S,
                env=_git_environment(self._root),
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise StoreUnavailable(f"git {arguments[0]} could not be run: {error}") from None
        if done.returncode and not may_fail:
            raise StoreUnavailable(f"git {arguments[0]}: {done.stderr.decode(errors='replace').strip()[:300]}")
        return done.stdout if not done.returncode else b""


def _git_environment(root: Path) -> dict[str, str]:
    return {
        "PATH": os.defpath,
        "HOME": str(root),
        "LC_ALL": "C.UTF-8",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_TERMINAL_PROMPT": "0",
    }


def _copy_path(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, dirs_exist_ok=True)
    elif source.exists():
        shutil.copyfile(source, target)
