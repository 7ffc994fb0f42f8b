"""Take memories out of all versions: one repository is told to another, but for what was erased."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO

from recollect.errors import StoreUnavailable
from recollect.mirror.layout import ENTRIES, SUMMARY

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
    """What is left out: texts that name an id, paths, folders; and all but the last summaries, which sum up more."""

    ids: Sequence[bytes]
    paths: set[str]
    below: tuple[str, ...]
    erased_blobs: set[bytes] = field(default_factory=set)
    commits: int = 0

    def keeps_blob(self, mark: bytes, data: bytes) -> bool:
        if any(id in data for id in self.ids):
            self.erased_blobs.add(mark)
            return False
        return True

    def keeps_file(self, mark: bytes, path: str) -> bool:
        if mark in self.erased_blobs or path in self.paths or path.startswith(self.below):
            return False
        # What a summary said before it was made anew may tell of anything.
        return not path.endswith(f"/summaries/{SUMMARY}.md") or ENTRIES not in path


def rewrite_history(
    source: Sequence[str],
    target: Sequence[str],
    *,
    environment: Mapping[str, str],
    ids: Sequence[str],
    paths: set[str],
    below: tuple[str, ...],
) -> int:
    """Bring every version from one repository to another without what was erased; gives how many were changed."""
    erasure_filter = _ErasureFilter([id.encode() for id in ids], paths, below)
    with (
        subprocess.Popen([*source, *_EXPORT_COMMAND], stdout=subprocess.PIPE, env=dict(environment)) as exporting,  # noqa: S603
        subprocess.Popen([*target, *_IMPORT_COMMAND], stdin=subprocess.PIPE, env=dict(environment)) as importing,  # noqa: S603
    ):
        if exporting.stdout is None or importing.stdin is None:
            raise StoreUnavailable("git gives no streams")
        try:
            _filter_stream(exporting.stdout, importing.stdin, erasure_filter)
            importing.stdin.write(b"done\n")
            importing.stdin.close()
        except BrokenPipeError:
            pass
        if exporting.wait() or importing.wait():
            raise StoreUnavailable("git could not write the versions anew; the old ones are as they were")
    return erasure_filter.commits


def _filter_stream(source: IO[bytes], target: IO[bytes], erasure_filter: _ErasureFilter) -> None:
    is_counted = False
    while line := source.readline():
        if line == b"blob\n":
            _filter_blob(source, target, erasure_filter)
            continue
        if line.startswith(b"commit "):
            is_counted = False
        if line.startswith(b"data "):
            target.write(line + source.read(int(line[5:])))
            continue
        if line.startswith(b"M "):
            _, _, mark, name = line.rstrip(b"\n").split(b" ", 3)
            if not erasure_filter.keeps_file(mark, _unquote_path(name)):
                erasure_filter.commits += not is_counted
                is_counted = True
                continue
        target.write(line)


def _filter_blob(source: IO[bytes], target: IO[bytes], erasure_filter: _ErasureFilter) -> None:
    mark = source.readline()
    size = source.readline()
    while not size.startswith(b"data "):
        size = source.readline()
    data = source.read(int(size[5:])) + source.readline()
    if erasure_filter.keeps_blob(mark.split()[1], data):
        target.write(b"blob\n" + mark + size + data)


def _unquote_path(name: bytes) -> str:
    """A path as git writes it, in quotes where it is not plain."""
    if not name.startswith(b'"'):
        return name.decode()
    unquoted: bytes = ast.literal_eval(f"b{name.decode()}")
    return unquoted.decode(errors="replace")
