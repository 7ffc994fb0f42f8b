"""Files that a model reads and writes by path; each is a memory in the ledger.

So they have history, undo, erasure and redaction, and can be recalled. Answers and errors are worded as in
Anthropic's memory tool, which models know. Nothing here touches a file system: `..` is resolved in the text, and
escapes (`%2e`) are not decoded.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from recollect.deps import Deps
from recollect.errors import Conflict, InvalidInput, StaleVersion, ToolFailed
from recollect.ledger.ledger import read_pages
from recollect.model.change import Actor, Add, Author, Change, Forget, Update
from recollect.model.ids import new_id
from recollect.model.memory import Category, MemoryRecord, MemoryType, Trust
from recollect.model.query import And, Filter, Listing, Op, Where
from recollect.model.scope import Scope
from recollect.model.text import normalise_invisible, validate_id
from recollect.model.times import now
from recollect.write.embed import embed
from recollect.write.redact import Redactor

ROOT = "/memories"
MAX_PATH_PARTS = 10
# File systems allow 255 bytes, and the mirror adds a suffix.
MAX_NAME_BYTES = 200
_ROOT_NAME = ROOT[1:]


def parse_path(path: str) -> str:
    """Return the canonical path; raise a ToolFailed if it is invalid."""
    if path != ROOT and not path.startswith(f"{ROOT}/"):
        raise ToolFailed(f"Path must start with /memories, got: {path}")
    plain = unicodedata.normalize("NFC", normalise_invisible(path))
    if "\\" in plain:
        raise ToolFailed(f"Path {path} has a backslash; folders are separated by /")
    parts = _resolve(plain)
    if parts[:1] != [_ROOT_NAME]:
        raise ToolFailed(f"Path {path} would escape /memories directory")
    return check_path("/" + "/".join(parts), original=path)


def check_path(path: str, *, original: str) -> str:
    """Return the path; raise a ToolFailed, with the `original` path of the model, if no file can have it."""
    parts = path.split("/")[2:]
    if len(parts) > MAX_PATH_PARTS:
        raise ToolFailed(f"Path {original} is {len(parts)} levels deep; the limit is {MAX_PATH_PARTS}")
    if any(len(part.encode()) > MAX_NAME_BYTES for part in parts):
        raise ToolFailed(f"Path {original} has a name of more than {MAX_NAME_BYTES} bytes")
    try:
        return validate_id(path, name="path")
    except InvalidInput as error:
        raise ToolFailed(f"Path {original} cannot be used: {error}") from None


def _resolve(path: str) -> list[str]:
    """Return the parts of a path without `.` and `..`; empty if it leads above the root."""
    parts: list[str] = []
    for part in path.split("/"):
        if part == "..":
            if not parts:
                return []
            parts.pop()
        elif part not in ("", "."):
            parts.append(part)
    return parts


def parents_of(path: str) -> tuple[str, ...]:
    """Return the parent folders of a path, without /memories."""
    parts = path.split("/")
    return tuple("/".join(parts[:count]) for count in range(3, len(parts)))


# Too low to be recalled for every question: files are searched, or viewed with the tool.
IMPORTANCE = 0.4
# The content of a memory cannot be empty; the text of a blank file is in its detail.
EMPTY = "(empty file)"
_TEXT = "text"


def file_text(record: MemoryRecord) -> str:
    text = record.detail.get(_TEXT)
    # Other interfaces change only the content.
    return text if isinstance(text, str) and record.content == EMPTY else record.content


def file_fields(text: str, detail: Mapping[str, Any], *, by: Author) -> dict[str, Any]:
    """Return the fields of a memory for a text; its trust depends on the author."""
    rest = {name: value for name, value in detail.items() if name != _TEXT}
    blank = not text.strip()
    return {
        "content": EMPTY if blank else text,
        "detail": {**rest, _TEXT: text} if blank else rest,
        "trust": Trust.HIGH if by.actor is Actor.PERSON else Trust.LOW,
    }


def new_file_record(scope: Scope, path: str, text: str, *, by: Author) -> MemoryRecord:
    at = now()
    return MemoryRecord(
        id=new_id(),
        scope=scope,
        level=scope.default_level,
        type=MemoryType.SEMANTIC,
        category=Category.FILE,
        key=path,
        importance=IMPORTANCE,
        source=by.who,
        created_at=at,
        updated_at=at,
        **file_fields(text, {}, by=by),
    )


_WIDTH = 6
_UNITS = "BKMG"
# The usual size of a folder itself.
_FOLDER_SIZE = "4K"
_MAX_DEPTH = 2


def render_file(text: str, path: str, lines: Sequence[int] | None) -> str:
    """Return a file with numbered lines, or those from `lines[0]` to `lines[1]`; -1 is the end."""
    every = text.split("\n")
    start, end = 0, len(every)
    if lines and len(lines) == 2:
        start = max(lines[0], 1) - 1
        end = end if lines[1] == -1 else lines[1]
    return f"Here's the content of {path} with line numbers:\n{number_lines(every[start:end], start + 1)}"


def number_lines(lines: Sequence[str], first: int) -> str:
    return "\n".join(f"{number:>{_WIDTH}}\t{line}" for number, line in enumerate(lines, first))


def render_folder(sizes: Mapping[str, int], path: str) -> str:
    """Return the content of a folder, two levels deep; `sizes` are by relative path."""
    rows = [f"{_FOLDER_SIZE}\t{path}", *(f"{size}\t{path}/{name}" for size, name in _listed(sizes, "", 1))]
    head = f"Here're the files and directories up to 2 levels deep in {path}, excluding hidden items:\n"
    return head + "\n".join(rows)


def _listed(sizes: Mapping[str, int], below: str, depth: int) -> Iterator[tuple[str, str]]:
    inside: dict[str, dict[str, int]] = {}
    for path, size in sizes.items():
        name, _, rest = path.partition("/")
        inside.setdefault(name, {})[rest] = size
    for name in sorted(inside):
        if name.startswith("."):
            continue
        if "" in inside[name]:
            yield render_size(inside[name][""]), below + name
        else:
            yield _FOLDER_SIZE, f"{below}{name}/"
            if depth < _MAX_DEPTH:
                yield from _listed(inside[name], f"{below}{name}/", depth + 1)


def render_size(count: int) -> str:
    """Return a number of bytes with its unit."""
    unit = min(max(count.bit_length() - 1, 0) // 10, len(_UNITS) - 1)
    size = count / 1024**unit
    return f"{size:.0f}{_UNITS[unit]}" if size.is_integer() else f"{size:.1f}{_UNITS[unit]}"


# More would not help the model.
_MAX_PLACES = 1000
_CONTEXT_LINES = 2


def replace_once(text: str, old: str, new: str, *, path: str) -> tuple[str, int]:
    """Return the text with its only occurrence of `old` replaced, and the line of that, from 0."""
    count = text.count(old)
    if not count:
        raise ToolFailed(f"No replacement was performed, old_str `{old}` did not appear verbatim in {path}.")
    if count > 1:
        raise ToolFailed(
            f"No replacement was performed. Multiple occurrences of old_str `{old}` in lines: "
            f"{', '.join(map(str, _find_lines(text, old)))}. Please ensure it is unique"
        )
    line = text.count("\n", 0, text.find(old))
    return text.replace(old, new), line


def _find_lines(text: str, old: str) -> list[int]:
    """Return the line of each occurrence."""
    places: list[int] = []
    line, last = 1, 0
    at = text.find(old)
    while at >= 0 and len(places) < _MAX_PLACES:
        line += text.count("\n", last, at)
        places.append(line)
        last, at = at, text.find(old, at + 1)
    return places


def render_snippet(text: str, line: int) -> str:
    """Return the lines of an edited text around a line, counted from 0."""
    lines = text.split("\n")
    start, end = max(0, line - _CONTEXT_LINES), min(len(lines), line + _CONTEXT_LINES + 1)
    rendered = number_lines(lines[start:end], start + 1)
    return f"The memory file has been edited. Here is the snippet showing the change (with line numbers):\n{rendered}"


def insert_lines(text: str, line: int, new: str) -> str:
    """Return the text with lines inserted after a line; 0 is before the first."""
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    if not 0 <= line <= len(lines):
        raise ToolFailed(f"Invalid `insert_line` parameter: {line}. It should be within the range [0, {len(lines)}].")
    lines.insert(line, new.rstrip("\n"))
    edited = "\n".join(lines)
    return edited if edited.endswith("\n") else f"{edited}\n"


MAX_FILE_BYTES = 100_000
MAX_FILE_COUNT = 2_000
_PAGE = 500
_TRIES = 20
R = TypeVar("R")


class MemoryFiles:
    """The files of all users; a scope has those of its project, or of the user."""

    def __init__(
        self, deps: Deps, redactor: Redactor, *, admit: Callable[[str, int], Awaitable[None]] | None = None
    ) -> None:
        self._ledger, self._embedder = deps.ledger, deps.embedder
        self._redacting = redactor
        self._admit = admit

    async def view(self, scope: Scope, path: str, lines: Sequence[int] | None = None) -> str:
        """Return a file with numbered lines, or the content of a folder."""
        key = parse_path(path)
        if (record := await self._at(scope, key)) is not None:
            return render_file(file_text(record), path, lines)
        below = await self._below(scope, key)
        if not below and key != ROOT:
            raise ToolFailed(f"The path {path} does not exist. Please provide a valid path.")
        sizes = {(record.key or "")[len(key) + 1 :]: len(file_text(record).encode()) for record in below}
        return render_folder(sizes, path)

    async def create(self, scope: Scope, path: str, text: str, *, by: Author) -> str:
        """Create a file; an existing one is not overwritten."""
        key = parse_path(path)
        record = new_file_record(scope, key, _check_text(text, path), by=by)
        if key == ROOT or await self._below(scope, key, limit=1):
            raise ToolFailed(f"File {path} already exists")
        if await self._ledger.count(scope, Listing(filter=And(_scope_filters(scope)))) >= MAX_FILE_COUNT:
            raise ToolFailed(f"There are {MAX_FILE_COUNT:,} files already: delete some, then create {path}")
        await self._check_parents(scope, key, original=path)
        await self._check_rate(scope)
        record, secrets = await self._redacting.redact_record(record)
        if record.key != key:
            raise ToolFailed(f"Path {path} holds a secret ({', '.join(secrets)}); choose another")
        [vector] = await embed([record.content], embedder=self._embedder)
        try:
            await self._apply(scope, [Add(record, vector, first=True)], by=by)
        except Conflict:
            raise ToolFailed(f"File {path} already exists") from None
        return f"File created successfully at: {path}{_describe_secrets(secrets)}"

    async def str_replace(self, scope: Scope, path: str, old: str, new: str, *, by: Author) -> str:
        """Replace the only occurrence of a text."""
        old, new = normalise_invisible(old), normalise_invisible(new)
        line = 0

        def replaced(text: str) -> str:
            nonlocal line
            text, line = replace_once(text, old, new, path=path)
            return text

        text, secrets = await self._edit(scope, path, replaced, by=by)
        return render_snippet(text, line) + _describe_secrets(secrets)

    async def insert(self, scope: Scope, path: str, line: int, text: str, *, by: Author) -> str:
        """Insert lines after a line; 0 is before the first."""
        new = normalise_invisible(text)
        _, secrets = await self._edit(scope, path, lambda content: insert_lines(content, line, new), by=by)
        return f"The file {path} has been edited.{_describe_secrets(secrets)}"

    async def delete(self, scope: Scope, path: str, *, by: Author) -> str:
        """Forget a file, or a folder with its content; undo restores it."""
        key = parse_path(path)
        if key == ROOT:
            raise ToolFailed("Cannot delete the /memories directory itself")
        gone = await self._at_or_below(scope, key)
        if not gone:
            raise ToolFailed(f"The path {path} does not exist")
        await self._apply(scope, [Forget(record.id) for record in gone], by=by)
        return f"Successfully deleted {path}"

    async def rename(self, scope: Scope, old_path: str, new_path: str, *, by: Author) -> str:
        """Rename a file, or a folder with its content."""
        old, new = parse_path(old_path), parse_path(new_path)
        if old == ROOT:
            raise ToolFailed("Cannot rename the /memories directory itself")
        await _retry_stale(lambda: self._move(scope, (old, old_path), (new, new_path), by=by))
        return f"Successfully renamed {old_path} to {new_path}"

    async def clear(self, scope: Scope, *, by: Author) -> str:
        """Forget all files of the scope."""
        await self._apply(scope, [Forget(record.id) for record in await self._below(scope, ROOT)], by=by)
        return "All memory cleared"

    async def _edit(
        self, scope: Scope, path: str, edited: Callable[[str], str], *, by: Author
    ) -> tuple[str, tuple[str, ...]]:
        """Edit a file; return its text, and the kinds of redacted secrets."""
        key = parse_path(path)

        async def write() -> tuple[str, tuple[str, ...]]:
            record = await self._file(scope, key, original=path)
            text = _check_text(edited(file_text(record)), path)
            clean, secrets = await self._redacting.redact_fields(file_fields(text, record.detail, by=by))
            [vector] = await embed([clean["content"]], embedder=self._embedder)
            update = Update(record.id, clean, expected_version=record.version, vector=vector)
            await self._apply(scope, [update], by=by)
            return file_text(replace(record, **clean)), secrets

        await self._check_rate(scope)
        return await _retry_stale(write)

    async def _move(self, scope: Scope, old: tuple[str, str], new: tuple[str, str], *, by: Author) -> None:
        (source, original), (target, new_original) = old, new
        if target == ROOT or await self._at_or_below(scope, target, limit=1):
            raise ToolFailed(f"The destination {new_original} already exists")
        moved = await self._at_or_below(scope, source)
        if not moved:
            raise ToolFailed(f"The path {original} does not exist")
        if target.startswith(f"{source}/"):
            raise ToolFailed(f"The path {original} cannot be moved into itself")
        await self._check_parents(scope, target, original=new_original)
        changes: list[Change] = []
        for record in moved:
            key = check_path(target + (record.key or "")[len(source) :], original=new_original)
            fields, secrets = await self._redacting.redact_fields({"key": key})
            if secrets:
                raise ToolFailed(f"Path {new_original} holds a secret ({', '.join(secrets)}); choose another")
            changes.append(Update(record.id, fields, expected_version=record.version))
        try:
            await self._apply(scope, changes, by=by)
        except StaleVersion:
            raise
        except Conflict:
            raise ToolFailed(f"The destination {new_original} already exists") from None

    async def _apply(self, scope: Scope, changes: Sequence[Change], *, by: Author) -> None:
        await self._ledger.apply(scope, changes, by=self._redacting.redact_author(by))

    async def _check_rate(self, scope: Scope) -> None:
        """Raise a TooFast if the user writes too fast; deleting and renaming are not limited."""
        if self._admit is not None:
            await self._admit(scope.user, 1)

    async def _file(self, scope: Scope, key: str, *, original: str) -> MemoryRecord:
        record = await self._at(scope, key)
        if record is not None:
            return record
        if key == ROOT or await self._below(scope, key, limit=1):
            raise ToolFailed(f"The path {original} is not a file.")
        raise ToolFailed(f"The path {original} does not exist. Please provide a valid path.")

    async def _at(self, scope: Scope, key: str) -> MemoryRecord | None:
        return next(iter(await self._query(scope, Where("key", Op.EQ, key), limit=1)), None)

    async def _below(self, scope: Scope, key: str, *, limit: int = MAX_FILE_COUNT) -> list[MemoryRecord]:
        records = await self._query(scope, Where("key", Op.CONTAINS, f"{key}/"), limit=MAX_FILE_COUNT)
        return [record for record in records if (record.key or "").startswith(f"{key}/")][:limit]

    async def _at_or_below(self, scope: Scope, key: str, *, limit: int = MAX_FILE_COUNT) -> list[MemoryRecord]:
        record = await self._at(scope, key)
        return [record] if record is not None else await self._below(scope, key, limit=limit)

    async def _query(self, scope: Scope, keyed: Filter, *, limit: int) -> list[MemoryRecord]:
        """Return the active files of the scope; those of a user's projects are not among the user's own."""
        listing = Listing(filter=And((*_scope_filters(scope), keyed)), limit=min(_PAGE, limit))
        records: list[MemoryRecord] = []
        async for page in read_pages(self._ledger, scope, listing):
            records += page
            if len(records) >= limit:
                break
        return records

    async def _check_parents(self, scope: Scope, key: str, *, original: str) -> None:
        parents = parents_of(key)
        if parents and (blocking := await self._query(scope, Where("key", Op.IN, parents), limit=1)):
            raise ToolFailed(f"{blocking[0].key} is a file, so {original} cannot be in it")


def _scope_filters(scope: Scope) -> tuple[Filter, Filter]:
    return Where("category", Op.EQ, str(Category.FILE)), Where("level", Op.EQ, str(scope.default_level))


async def _retry_stale(call: Callable[[], Awaitable[R]]) -> R:
    """Return the result of a call, retried after concurrent writes."""
    for _ in range(_TRIES):
        try:
            return await call()
        except StaleVersion:
            continue
    raise ToolFailed("The file is changed concurrently; try again later")


def _check_text(text: str, path: str) -> str:
    """Return the text without invisible characters; raise a ToolFailed if it is too long."""
    plain = normalise_invisible(text)
    if (size := len(plain.encode())) > MAX_FILE_BYTES:
        raise ToolFailed(
            f"File {path} would be {size:,} bytes; the limit is {MAX_FILE_BYTES:,}: shorten it, or use several files"
        )
    return plain


def _describe_secrets(secrets: Sequence[str]) -> str:
    return f"\nSecrets are not kept, and were left out: {', '.join(secrets)}" if secrets else ""


# The commands of the tool, and their arguments.
COMMANDS: Mapping[str, tuple[str, ...]] = {
    "view": ("path",),
    "create": ("path", "file_text"),
    "str_replace": ("path", "old_str", "new_str"),
    "insert": ("path", "insert_line", "insert_text"),
    "delete": ("path",),
    "rename": ("old_path", "new_path"),
}


async def run_command(files: MemoryFiles, scope: Scope, arguments: Mapping[str, Any], *, by: Author) -> str:
    """Run a command of a model with its arguments, and return the answer."""
    command = arguments.get("command")
    if not isinstance(command, str) or command not in COMMANDS:
        raise ToolFailed(f"Unknown command: {command}; the commands are {', '.join(COMMANDS)}")
    values = [_argument(arguments, name) for name in COMMANDS[command]]
    if command == "view":
        return await files.view(scope, values[0], _view_range(arguments.get("view_range")))
    answer: str = await getattr(files, command)(scope, *values, by=by)
    return answer


def _argument(arguments: Mapping[str, Any], name: str) -> Any:
    value = arguments.get(name)
    is_number = name == "insert_line"
    if isinstance(value, bool) or not isinstance(value, int if is_number else str):
        kind = "a whole number" if is_number else "a text"
        raise ToolFailed(f"The command {arguments['command']} needs `{name}`, {kind}")
    return value


def _view_range(value: object) -> list[int] | None:
    if value is None:
        return None
    if not isinstance(value, list) or any(isinstance(each, bool) or not isinstance(each, int) for each in value):
        raise ToolFailed("`view_range` is a list of two line numbers, such as [1, 20]; -1 is the last line")
    return value
