"""Take memories out of all versions: one repository is told to another, but for what was erased."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO

from recollect.errors import StoreUnavailable
from recollect.mirror.layout import ENTRIES, SUMMARY

_EXPORT = ("fast-export", "--all", "--signed-tags=strip", "--tag-of-filtered-object=rewrite", "--reencode=yes")
_IMPORT = ("fast-import", "--quiet", "--force", "--done")


@dataclass(slots=True)
class _Sieve:
    """What is left out: texts that name an id, paths, folders; and all but the last summaries, which sum up more."""

    ids: Sequence[bytes]
    paths: set[str]
    below: tuple[str, ...]
    left_out: set[bytes] = field(default_factory=set)
    commits: int = 0

    def keeps(self, mark: bytes, data: bytes) -> bool:
        if any(id in data for id in self.ids):
            self.left_out.add(mark)
            return False
        return True

    def keeps_file(self, mark: bytes, path: str) -> bool:
        if mark in self.left_out or path in self.paths or path.startswith(self.below):
            return False
        # What a summary said before it was made anew may tell of anything.
        return not path.endswith(f"/summaries/{SUMMARY}.md") or ENTRIES not in path


def rewrite(
    source: Sequence[str],
    target: Sequence[str],
    *,
    environment: Mapping[str, str],
    ids: Sequence[str],
    paths: set[str],
    below: tuple[str, ...],
) -> int:
    """Bring every version from one repository to another without what was erased; gives how many were changed."""
    sieve = _Sieve([id.encode() for id in ids], paths, below)
    with (
        subprocess.Popen([*source, *_EXPORT], stdout=subprocess.PIPE, env=dict(environment)) as exporting,  # noqa: S603
        subprocess.Popen([*target, *_IMPORT], stdin=subprocess.PIPE, env=dict(environment)) as importing,  # noqa: S603
    ):
        if exporting.stdout is None or importing.stdin is None:
            raise StoreUnavailable("git gives no streams")
        try:
            _sift(exporting.stdout, importing.stdin, sieve)
            importing.stdin.write(b"done\n")
            importing.stdin.close()
        except BrokenPipeError:
            pass
        if exporting.wait() or importing.wait():
            raise StoreUnavailable("git could not write the versions anew; the old ones are as they were")
    return sieve.commits


def _sift(source: IO[bytes], target: IO[bytes], sieve: _Sieve) -> None:
    touched = False
    while line := source.readline():
        if line == b"blob\n":
            _sift_blob(source, target, sieve)
            continue
        if line.startswith(b"commit "):
            touched = False
        if line.startswith(b"data "):
            target.write(line + source.read(int(line[5:])))
            continue
        if line.startswith(b"M "):
            _, _, mark, name = line.rstrip(b"\n").split(b" ", 3)
            if not sieve.keeps_file(mark, _path(name)):
                sieve.commits += not touched
                touched = True
                continue
        target.write(line)


def _sift_blob(source: IO[bytes], target: IO[bytes], sieve: _Sieve) -> None:
    mark = source.readline()
    size = source.readline()
    while not size.startswith(b"data "):
        size = source.readline()
    data = source.read(int(size[5:])) + source.readline()
    if sieve.keeps(mark.split()[1], data):
        target.write(b"blob\n" + mark + size + data)


def _path(name: bytes) -> str:
    """A path as git writes it, in quotes where it is not plain."""
    if not name.startswith(b'"'):
        return name.decode()
    unquoted: bytes = ast.literal_eval(f"b{name.decode()}")
    return unquoted.decode(errors="replace")
