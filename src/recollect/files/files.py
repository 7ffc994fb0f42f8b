"""The files of users: a model looks at them and writes them by path, and the ledger keeps them like any memory.

So each has its history, undo, erasure and no secrets, and recall finds what it says. The answers are those that
models know from Anthropic's memory tool; what cannot be done is a ToolFailed in the same words.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from recollect.errors import Conflict, StaleVersion, ToolFailed
from recollect.files import edit
from recollect.files.kept import fields_of, new_file, text_of
from recollect.files.paths import ROOT, checked_path, parents_of, read_path
from recollect.files.shown import shown_file, shown_folder
from recollect.model.change import Add, By, Change, Forget, Update
from recollect.model.invisible import normalise_invisible
from recollect.model.memory import Category, MemoryRecord
from recollect.model.query import And, Filter, Listing, Op, Where
from recollect.model.scope import Scope
from recollect.write.deps import Deps
from recollect.write.embed import embed
from recollect.write.screening.given import Redacting

MOST_BYTES = 100_000
MOST_FILES = 2_000
_PAGE = 500
_TRIES = 20
R = TypeVar("R")


class Files:
    """The files of all users; those of a scope are its project's, or else the user's own."""

    def __init__(
        self, means: Deps, redacting: Redacting, *, pace: Callable[[str, int], Awaitable[None]] | None = None
    ) -> None:
        self._ledger, self._embedder = means.ledger, means.embedder
        self._redacting = redacting
        self._pace = pace

    # Looking

    async def view(self, scope: Scope, path: str, lines: Sequence[int] | None = None) -> str:
        """A file with its lines numbered, or what lies in a folder."""
        place = read_path(path)
        if (record := await self._at(scope, place)) is not None:
            return shown_file(text_of(record), path, lines)
        below = await self._below(scope, place)
        if not below and place != ROOT:
            raise ToolFailed(f"The path {path} does not exist. Please provide a valid path.")
        sizes = {(record.key or "")[len(place) + 1 :]: len(text_of(record).encode()) for record in below}
        return shown_folder(sizes, path)

    # Writing

    async def create(self, scope: Scope, path: str, text: str, *, by: By) -> str:
        """Make a file; one that is there is not written over."""
        place = read_path(path)
        record = new_file(scope, place, _checked(text, path), by=by)
        if place == ROOT or await self._below(scope, place, most=1):
            raise ToolFailed(f"File {path} already exists")
        await self._check_room(scope, place, said=path)
        await self._check_pace(scope)
        record, secrets = self._redacting.record(record)
        if record.key != place:
            raise ToolFailed(f"Path {path} holds a secret ({', '.join(secrets)}); choose another")
        [vector] = await embed([record.content], embedder=self._embedder)
        try:
            await self._apply(scope, [Add(record, vector, first=True)], by=by)
        except Conflict:
            raise ToolFailed(f"File {path} already exists") from None
        return f"File created successfully at: {path}{_without(secrets)}"

    async def str_replace(self, scope: Scope, path: str, old: str, new: str, *, by: By) -> str:
        """Put other words in the one place where some stand."""
        old, new = normalise_invisible(old), normalise_invisible(new)
        line = 0

        def replaced(text: str) -> str:
            nonlocal line
            text, line = edit.replaced(text, old, new, path=path)
            return text

        text, secrets = await self._edit(scope, path, replaced, by=by)
        return edit.snippet(text, line) + _without(secrets)

    async def insert(self, scope: Scope, path: str, line: int, text: str, *, by: By) -> str:
        """Put lines after a line; 0 is before the first."""
        new = normalise_invisible(text)
        _, secrets = await self._edit(scope, path, lambda held: edit.inserted(held, line, new), by=by)
        return f"The file {path} has been edited.{_without(secrets)}"

    async def delete(self, scope: Scope, path: str, *, by: By) -> str:
        """Forget a file, or a folder with all that is in it; undo brings it back."""
        place = read_path(path)
        if place == ROOT:
            raise ToolFailed("Cannot delete the /memories directory itself")
        gone = await self._at_or_below(scope, place)
        if not gone:
            raise ToolFailed(f"The path {path} does not exist")
        await self._apply(scope, [Forget(record.id) for record in gone], by=by)
        return f"Successfully deleted {path}"

    async def rename(self, scope: Scope, old_path: str, new_path: str, *, by: By) -> str:
        """Give a file another path, or a folder with all that is in it."""
        old, new = read_path(old_path), read_path(new_path)
        if old == ROOT:
            raise ToolFailed("Cannot rename the /memories directory itself")
        await _again(lambda: self._move(scope, (old, old_path), (new, new_path), by=by))
        return f"Successfully renamed {old_path} to {new_path}"

    async def clear(self, scope: Scope, *, by: By) -> str:
        """Forget all files of the scope."""
        await self._apply(scope, [Forget(record.id) for record in await self._below(scope, ROOT)], by=by)
        return "All memory cleared"

    async def _edit(
        self, scope: Scope, path: str, edited: Callable[[str], str], *, by: By
    ) -> tuple[str, tuple[str, ...]]:
        """The text that an edit led to, and the kinds of secrets that were left out of it."""
        place = read_path(path)

        async def write() -> tuple[str, tuple[str, ...]]:
            record = await self._file(scope, place, said=path)
            text = _checked(edited(text_of(record)), path)
            clean, secrets = self._redacting.fields(fields_of(text, record.detail, by=by))
            [vector] = await embed([clean["content"]], embedder=self._embedder)
            update = Update(record.id, clean, expected_version=record.version, vector=vector)
            await self._apply(scope, [update], by=by)
            return text_of(replace(record, **clean)), secrets

        await self._check_pace(scope)
        return await _again(write)

    async def _move(self, scope: Scope, old: tuple[str, str], new: tuple[str, str], *, by: By) -> None:
        (source, said), (target, wanted) = old, new
        if target == ROOT or await self._at_or_below(scope, target, most=1):
            raise ToolFailed(f"The destination {wanted} already exists")
        moved = await self._at_or_below(scope, source)
        if not moved:
            raise ToolFailed(f"The path {said} does not exist")
        if target.startswith(f"{source}/"):
            raise ToolFailed(f"The path {said} cannot be moved into itself")
        await self._check_parents(scope, target, said=wanted)
        changes: list[Change] = []
        for record in moved:
            key = checked_path(target + (record.key or "")[len(source) :], said=wanted)
            fields, secrets = self._redacting.fields({"key": key})
            if secrets:
                raise ToolFailed(f"Path {wanted} holds a secret ({', '.join(secrets)}); choose another")
            changes.append(Update(record.id, fields, expected_version=record.version))
        try:
            await self._apply(scope, changes, by=by)
        except StaleVersion:
            raise
        except Conflict:
            raise ToolFailed(f"The destination {wanted} already exists") from None

    async def _apply(self, scope: Scope, changes: Sequence[Change], *, by: By) -> None:
        await self._ledger.apply(scope, changes, by=self._redacting.by(by))

    async def _check_pace(self, scope: Scope) -> None:
        """Raise a TooFast if more is written than may be; what takes away or moves is not counted."""
        if self._pace is not None:
            await self._pace(scope.user, 1)

    # Finding

    async def _file(self, scope: Scope, place: str, *, said: str) -> MemoryRecord:
        record = await self._at(scope, place)
        if record is not None:
            return record
        if place == ROOT or await self._below(scope, place, most=1):
            raise ToolFailed(f"The path {said} is not a file.")
        raise ToolFailed(f"The path {said} does not exist. Please provide a valid path.")

    async def _at(self, scope: Scope, place: str) -> MemoryRecord | None:
        return next(iter(await self._found(scope, Where("key", Op.EQ, place), most=1)), None)

    async def _below(self, scope: Scope, place: str, *, most: int = MOST_FILES) -> list[MemoryRecord]:
        found = await self._found(scope, Where("key", Op.CONTAINS, f"{place}/"), most=MOST_FILES)
        return [record for record in found if (record.key or "").startswith(f"{place}/")][:most]

    async def _at_or_below(self, scope: Scope, place: str, *, most: int = MOST_FILES) -> list[MemoryRecord]:
        record = await self._at(scope, place)
        return [record] if record is not None else await self._below(scope, place, most=most)

    async def _found(self, scope: Scope, keyed: Filter, *, most: int) -> list[MemoryRecord]:
        """Active files of the scope's own place; those of a user's projects are not among the user's."""
        filter = And((*_of_place(scope), keyed))
        found: list[MemoryRecord] = []
        cursor = None
        while len(found) < most:
            page = await self._ledger.find(scope, Listing(filter=filter, limit=min(_PAGE, most), cursor=cursor))
            found += page
            cursor = page.cursor
            if cursor is None:
                break
        return found

    async def _check_room(self, scope: Scope, place: str, *, said: str) -> None:
        if await self._ledger.count(scope, Listing(filter=And(_of_place(scope)))) >= MOST_FILES:
            raise ToolFailed(f"There are {MOST_FILES:,} files already: delete some, then create {said}")
        await self._check_parents(scope, place, said=said)

    async def _check_parents(self, scope: Scope, place: str, *, said: str) -> None:
        parents = parents_of(place)
        if parents and (blocking := await self._found(scope, Where("key", Op.IN, parents), most=1)):
            raise ToolFailed(f"{blocking[0].key} is a file, so {said} cannot be in it")


def _of_place(scope: Scope) -> tuple[Filter, Filter]:
    return Where("category", Op.EQ, str(Category.FILE)), Where("level", Op.EQ, str(scope.natural_level))


async def _again(call: Callable[[], Awaitable[R]]) -> R:
    """What a call comes to; where someone else wrote in between, it looks at what they made of it."""
    for _ in range(_TRIES):
        try:
            return await call()
        except StaleVersion:
            continue
    raise ToolFailed("The file is being changed by someone else all the time; try again later")


def _checked(text: str, path: str) -> str:
    """The text as it is kept: what nobody sees is left out, and too much is refused."""
    plain = normalise_invisible(text)
    if (size := len(plain.encode())) > MOST_BYTES:
        raise ToolFailed(
            f"File {path} would be {size:,} bytes; the limit is {MOST_BYTES:,}: shorten it, or use several files"
        )
    return plain


def _without(secrets: Sequence[str]) -> str:
    return f"\nSecrets are not kept, and were left out: {', '.join(secrets)}" if secrets else ""
