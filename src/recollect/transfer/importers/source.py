"""A file, a folder or a zip archive as an untrusted source: no access outside it, no links, limited sizes.

Archives are not unpacked: entries are read by name, and one that must be on disk gets a temporary name.
"""

from __future__ import annotations

import json
import os
import sqlite3
import stat
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import IO, Any

from recollect.errors import InvalidInput
from recollect.transfer.importers.items import SkippedItem, SourceItem

MAX_FILES = 500_000
# For a database, or for lines that are read one by one.
MAX_FILE_BYTES = 2 << 30
# For a file that is read as a whole.
MAX_TEXT_BYTES = 1 << 30
MAX_BYTES = 8 << 30
MAX_LINE_BYTES = 64 << 20
# Deflate compresses text to about a tenth; a thousandth is a zip bomb.
MAX_RATIO = 250
_MIN_RATIO_BYTES = 16 << 20
_HEAD_BYTES = 1 << 16
# NotImplementedError, which is a RuntimeError, is for other versions of the format.
_UNREADABLE = (OSError, zipfile.BadZipFile, zlib.error, UnicodeDecodeError, RuntimeError, EOFError)


@dataclass(frozen=True)
class ImportSource:
    """The location of an import; `options` are for importers that read an API."""

    location: str
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def is_address(self) -> bool:
        """Whether it is an address, not on disk."""
        return self.location.startswith(("http://", "https://")) or self.is_database

    @property
    def is_database(self) -> bool:
        """Whether it is the address of a PostgreSQL database."""
        return self.location.startswith(("postgresql://", "postgres://"))

    @property
    def display_name(self) -> str:
        """The location without a password."""
        if not self.is_database:
            return self.location
        from recollect.ledger.postgres import mask_dsn

        return mask_dsn(self.location)

    @cached_property
    def path(self) -> Path:
        """The path on disk."""
        path = Path(self.location).expanduser()
        if not path.exists():
            raise InvalidInput(f"{path.absolute()} does not exist; name an existing file or folder")
        return path

    @cached_property
    def _zip(self) -> zipfile.ZipFile | None:
        if not self.path.is_file() or not zipfile.is_zipfile(self.path):
            return None
        try:
            return zipfile.ZipFile(self.path)
        except _UNREADABLE as error:
            raise InvalidInput(f"{self.location} is not a readable zip archive: {error}") from None

    @cached_property
    def _listing(self) -> tuple[dict[str, int], list[SkippedItem]]:
        """The files with their sizes, and the skipped entries."""
        if self.is_address:
            return {}, []
        if self._zip is not None:
            return _list_zip(self._zip)
        if self.path.is_dir():
            return _list_folder(self.path)
        if not self.path.is_file():
            raise InvalidInput(f"{self.location} is neither a file nor a folder")
        return {self.path.name: self.path.stat().st_size}, []

    @property
    def names(self) -> list[str]:
        """The names of the files, relative to the source, sorted."""
        return list(self._listing[0])

    @property
    def skipped(self) -> list[SkippedItem]:
        """The skipped entries: links, and names that point outside."""
        return self._listing[1]

    def files_ending(self, *ends: str) -> list[str]:
        """Return the files with one of these endings."""
        return [name for name in self.names if name.lower().endswith(ends)]

    def json_files(self, word: str, *, allow_any: bool = True) -> list[str]:
        """Return the .json files whose names begin with a word, or else the only one there is."""
        names = self.files_ending(".json")
        named = [name for name in names if name.rsplit("/", 1)[-1].startswith(word)]
        return named or (names if allow_any and len(names) == 1 else [])

    @contextmanager
    def open(self, name: str) -> Iterator[IO[bytes]]:
        """Open a file for reading."""
        size = self._listing[0][name]
        if size > MAX_FILE_BYTES:
            raise InvalidInput(f"{name} is {size:,} bytes; the limit is {MAX_FILE_BYTES:,}")
        try:
            if self._zip is not None:
                with self._zip.open(name) as entry:
                    yield entry
            else:
                path = self.path / name if self.path.is_dir() else self.path
                # The file may have been replaced by a link since it was listed.
                with open(os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0)), "rb") as file:
                    yield file
        except _UNREADABLE as error:
            raise InvalidInput(f"{name} cannot be read: {error}") from None

    def head(self, name: str) -> bytes:
        """Return the beginning of a file; empty if it cannot be read."""
        try:
            with self.open(name) as file:
                return file.read(_HEAD_BYTES)
        except InvalidInput:
            return b""

    def text(self, name: str) -> str:
        """Return the text of a file."""
        if (size := self._listing[0][name]) > MAX_TEXT_BYTES:
            raise InvalidInput(f"{name} is {size:,} bytes; the limit for a file of this kind is {MAX_TEXT_BYTES:,}")
        with self.open(name) as file:
            data = file.read(MAX_TEXT_BYTES)
        try:
            return data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise InvalidInput(f"{name} is not UTF-8 at byte {error.start}") from None

    def json(self, name: str) -> Any:
        """Return the JSON document of a file."""
        try:
            return json.loads(self.text(name))
        except RecursionError:
            raise InvalidInput(f"{name} is nested too deep") from None
        except ValueError as error:
            raise InvalidInput(f"{name} is not JSON: {error}") from None

    def json_lines(self, name: str) -> Iterator[tuple[str, Any]]:
        """Yield the place and the JSON value of each line; a `SkippedItem` for an invalid one."""
        with self.open(name) as file:
            number = 0
            while line := file.readline(MAX_LINE_BYTES):
                number += 1
                where = f"{name}, line {number}"
                if not line.strip():
                    continue
                try:
                    yield where, json.loads(line)
                except RecursionError:
                    yield where, SkippedItem(where, "nested too deep")
                except ValueError:
                    yield where, SkippedItem(where, "not JSON")

    @contextmanager
    def on_disk(self, name: str) -> Iterator[tuple[Path, bool]]:
        """Yield the path of a database, and whether it is a copy, which a database with a log needs."""
        if self._zip is None and not self._listing[0].get(f"{name}-wal"):
            yield (self.path / name if self.path.is_dir() else self.path), False
            return
        with tempfile.TemporaryDirectory(prefix="recollect-import-") as folder:
            copy = Path(folder) / "copy"
            for tail in ("", "-wal"):
                if name + tail in self._listing[0]:
                    with self.open(name + tail) as file, open(f"{copy}{tail}", "wb") as out:
                        while piece := file.read(1 << 20):
                            out.write(piece)
            yield copy, True

    def close(self) -> None:
        """Close the archive."""
        if not self.is_address and "_zip" in self.__dict__ and self._zip is not None:
            self._zip.close()


def _list_folder(root: Path) -> tuple[dict[str, int], list[SkippedItem]]:
    sizes: dict[str, int] = {}
    skipped: list[SkippedItem] = []
    for folder, inner, files in os.walk(root, followlinks=False):
        inner.sort()
        for name in [*inner, *sorted(files)]:
            path = Path(folder, name)
            inside = path.relative_to(root).as_posix()
            mode = path.lstat().st_mode
            if stat.S_ISLNK(mode):
                skipped.append(SkippedItem(inside, "a link is not followed"))
            elif stat.S_ISREG(mode):
                sizes[inside] = path.lstat().st_size
        if len(sizes) > MAX_FILES:
            raise InvalidInput(f"{root} has more than {MAX_FILES:,} files")
    return sizes, skipped


def _list_zip(archive: zipfile.ZipFile) -> tuple[dict[str, int], list[SkippedItem]]:
    sizes: dict[str, int] = {}
    skipped: list[SkippedItem] = []
    total = 0
    entries = archive.infolist()
    if len(entries) > MAX_FILES:
        raise InvalidInput(f"the archive has more than {MAX_FILES:,} entries")
    for entry in entries:
        if entry.filename.endswith("/"):
            continue
        total += entry.file_size
        if total > MAX_BYTES:
            raise InvalidInput(f"the content of the archive is larger than {MAX_BYTES:,} bytes")
        if why := _refusal_reason(entry):
            skipped.append(SkippedItem(ascii(entry.filename)[1:-1], why))
        else:
            sizes[entry.filename] = entry.file_size
    return sizes, skipped


def _refusal_reason(entry: zipfile.ZipInfo) -> str:
    name = PurePosixPath(entry.filename.replace("\\", "/"))
    if not name.parts:
        return "it has no name"
    if name.is_absolute() or ".." in name.parts or ":" in name.parts[0]:
        return "its name points outside the archive"
    if stat.S_ISLNK(entry.external_attr >> 16):
        return "a link is not followed"
    if entry.flag_bits & 1:
        return "it is encrypted"
    if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        return "its compression is neither none nor deflate"
    if entry.file_size > MAX_FILE_BYTES:
        return f"it is larger than {MAX_FILE_BYTES:,} bytes"
    if entry.file_size > _MIN_RATIO_BYTES and entry.file_size > MAX_RATIO * max(1, entry.compress_size):
        return "its compression ratio is that of a zip bomb"
    return ""


_SQLITE_MAGIC = b"SQLite format 3\0"


def has_tables(source: ImportSource, name: str, *tables: str) -> bool:
    """Return whether a file is a SQLite database with these tables."""
    if not source.head(name).startswith(_SQLITE_MAGIC):
        return False
    try:
        with open_sqlite(source, name) as connection:
            existing = {row[0] for row in connection.execute("SELECT name FROM sqlite_master")}
    except InvalidInput:
        return False
    return set(tables) <= existing


@contextmanager
def open_sqlite(source: ImportSource, name: str) -> Iterator[sqlite3.Connection]:
    """Open a SQLite file read-only; errors are raised as InvalidInput."""
    with source.on_disk(name) as (path, is_copy):
        # Neither the file nor its folder is written to.
        query_string = "" if is_copy else "?immutable=1"
        # Batches are read on different threads.
        connection = sqlite3.connect(f"{path.resolve().as_uri()}{query_string}", uri=True, check_same_thread=False)
        try:
            # A malicious file could define its tables as views that call functions.
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.execute("PRAGMA query_only = ON")
            yield connection
        except sqlite3.Error as error:
            raise InvalidInput(f"{name} is a damaged database: {error}") from None
        finally:
            connection.close()


def iter_rows(connection: sqlite3.Connection, sql: str, params: Sequence[Any] = ()) -> Iterator[dict[str, Any]]:
    """Yield the rows of a query as dictionaries."""
    cursor = connection.execute(sql, params)
    names = [each[0] for each in cursor.description]
    for row in cursor:
        yield dict(zip(names, row, strict=True))


def read_each(data: Any, where: str, read: Callable[[Any, str], Iterator[SourceItem]]) -> Iterator[SourceItem]:
    """Yield the items of each object of a JSON list, or of the one object; an object of another shape is skipped."""
    for number, each in enumerate(data if isinstance(data, list) else [data], 1):
        place = f"{where} {number}"
        try:
            yield from read(each, place)
        except (InvalidInput, KeyError, TypeError, AttributeError, ValueError) as error:
            yield SkippedItem(place, f"unexpected format: {type(error).__name__} {error}")
