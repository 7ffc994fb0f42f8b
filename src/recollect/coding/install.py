"""Plan and apply the installation of our entries in a client's configuration files, and their removal.

A plan is made before anything is written. Each file is edited as text, so that comments, order and the entries of
others stay; the result is parsed and compared with what was intended before it is written.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from difflib import unified_diff
from pathlib import Path
from typing import Any

from recollect.coding import jsonc
from recollect.coding.clients import (
    CLIENTS,
    MARKER,
    Client,
    Entry,
    HookEntry,
    InstallTarget,
    JsonEntry,
    TomlTable,
    WholeFile,
    is_own_hook,
)
from recollect.errors import InvalidInput
from recollect.frozen_dataclass import frozen_dataclass

_BACKUP_SUFFIX = ".recollect-backup"


@frozen_dataclass
class FileChange:
    """The text of a file before and after; None if it does not exist."""

    path: Path
    before: str | None
    after: str | None
    # False if a backup without our entries exists already, or if there is nothing but our own text.
    needs_backup: bool = True

    @property
    def diff(self) -> str:
        """The change as a unified diff."""
        before, after = ((text or "").splitlines() for text in (self.before, self.after))
        old, new = ("/dev/null" if text is None else str(self.path) for text in (self.before, self.after))
        return "\n".join(unified_diff(before, after, old, new, lineterm=""))


@frozen_dataclass
class InstallPlan:
    """The changes of an installation or a removal, and what the user should know."""

    client: Client
    changes: tuple[FileChange, ...]
    notes: tuple[str, ...] = ()


def get_client(name: str) -> Client:
    """Return a client by its name."""
    if name not in CLIENTS:
        raise InvalidInput(f"unknown client {name!r}; the known ones are {', '.join(CLIENTS)}")
    return CLIENTS[name]


def plan_install(client: Client, target: InstallTarget) -> InstallPlan:
    """Return the changes that install our entries; none if all are there."""
    _check_scope(client, target)
    changes, notes = [], list(client.notes)
    unwanted = _hooks_by_file(client, target) if target.hooks == "off" else {}
    for path, entries in client.entries(target).items():
        before = _read(path)
        if _is_foreign(before, entries):
            notes.append(f"{path} exists and is not ours: it was left as it is.")
            continue
        after = _edit(path, before, entries)
        if after is not None and path in unwanted:
            after = _remove(path, after, unwanted[path])
        if after != before:
            backup = _read(_backup_of(path))
            has_original = backup is not None and _has_own_entries(path, before, entries)
            changes.append(FileChange(path, before, after, needs_backup=not has_original))
    return InstallPlan(client, tuple(changes), tuple(notes))


def _hooks_by_file(client: Client, target: InstallTarget) -> dict[Path, list[Entry]]:
    """Return the hooks that an installation with hooks has."""
    with_hooks = client.entries(replace(target, hooks="command")).items()
    return {path: [each for each in entries if isinstance(each, HookEntry)] for path, entries in with_hooks}


def plan_uninstall(client: Client, target: InstallTarget) -> InstallPlan:
    """Return the changes that remove our entries and nothing else."""
    _check_scope(client, target)
    changes, notes = [], []
    for path, entries in client.entries(target).items():
        before = _read(path)
        if before is None:
            continue
        if _is_foreign(before, entries):
            notes.append(f"{path} is not ours: it was left as it is.")
            continue
        after = _remove(path, before, entries)
        if after != before:
            # A file of ours needs none, unless it was edited.
            needs_backup = after is not None or any(
                isinstance(each, WholeFile) and each.content != before for each in entries
            )
            changes.append(FileChange(path, before, after, needs_backup))
    return InstallPlan(client, tuple(changes), tuple(notes))


def is_installed(client: Client, target: InstallTarget) -> bool:
    """Return whether the client's configuration has an entry of ours; False if it cannot be read."""
    try:
        return bool(plan_uninstall(client, target).changes)
    except (InvalidInput, OSError):
        return False


def apply_plan(plan: InstallPlan) -> None:
    """Write all changes with a backup of each file, or none of them."""
    done: list[FileChange] = []
    try:
        for change in plan.changes:
            done.append(change)
            if change.before is not None and change.needs_backup:
                _write(_backup_of(change.path), change.before, like=change.path)
            _replace(change.path, change.after)
    except OSError as error:
        for change in done:
            if _read(change.path) != change.before:
                _replace(change.path, change.before)
        reason = error.strerror or error
        raise InvalidInput(
            f"{error.filename or change.path} cannot be written ({reason}); nothing was changed"
        ) from None


def _check_scope(client: Client, target: InstallTarget) -> None:
    if target.in_project and not client.has_project_scope:
        raise InvalidInput(f"{client.title} has no configuration for a project; leave out --project")


def _backup_of(path: Path) -> Path:
    return path.with_name(path.name + _BACKUP_SUFFIX)


def _read(path: Path) -> str | None:
    try:
        return path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        return None
    except (UnicodeDecodeError, IsADirectoryError, NotADirectoryError):
        raise InvalidInput(f"{path} is not a text file; nothing was changed") from None


def _replace(path: Path, text: str | None) -> None:
    if text is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        _write(path, text, like=path)
        return
    path.unlink(missing_ok=True)
    # Folders that hold nothing any more; those of the client itself are never empty.
    for folder in list(path.parents)[:3]:
        try:
            folder.rmdir()
        except OSError:
            return


def _write(path: Path, text: str, *, like: Path) -> None:
    """Write a file as a whole, with the permissions of an existing one; a link stays a link."""
    path = path.resolve()
    temporary = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        mode = like.stat().st_mode & 0o777 if like.exists() else 0o600
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as file:
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _is_foreign(before: str | None, entries: Sequence[Entry]) -> bool:
    """Return whether a file that would be ours is someone else's."""
    return before is not None and any(isinstance(each, WholeFile) for each in entries) and MARKER not in before


def _edit(path: Path, before: str | None, entries: Sequence[Entry]) -> str | None:
    text = before
    try:
        for entry in entries:
            match entry:
                case WholeFile():
                    text = entry.content
                case TomlTable():
                    text = _set_table(text or "", entry)
                case JsonEntry():
                    text = jsonc.set_value(text or "", entry.path, entry.value)
                case HookEntry():
                    text = _set_hook(text or "", entry)
    except (jsonc.InvalidJson, tomllib.TOMLDecodeError) as error:
        raise _broken(path, error) from None
    return text


def _remove(path: Path, before: str, entries: Sequence[Entry]) -> str | None:
    backup = _read(_backup_of(path))
    text = before
    try:
        original = jsonc.parse(backup) if backup is not None and path.suffix == ".json" else None
        for entry in entries:
            match entry:
                case WholeFile():
                    return None
                case TomlTable():
                    text = _remove_table(text, entry.name)
                case JsonEntry() if not entry.is_shared:
                    text = _prune(jsonc.remove(text, entry.path), entry.path[:-1], original)
                case HookEntry():
                    text = _prune(_remove_hooks(text, entry.path), entry.path, original)
    except (jsonc.InvalidJson, tomllib.TOMLDecodeError) as error:
        raise _broken(path, error) from None
    shared = {each.path[0]: each.value for each in entries if isinstance(each, JsonEntry) and each.is_shared}
    is_empty = not text.strip() if path.suffix == ".toml" else text != before and jsonc.parse(text) in ({}, shared)
    return None if is_empty and backup is None and "//" not in text and "/*" not in text else text


def _broken(path: Path, error: ValueError) -> InvalidInput:
    kind = "TOML" if path.suffix == ".toml" else "JSON"
    return InvalidInput(f"{path} is not valid {kind}: {error}; repair it first, nothing was changed")


def _has_own_entries(path: Path, before: str | None, entries: Sequence[Entry]) -> bool:
    return before is not None and _remove(path, before, entries) != before


def _prune(text: str, path: Sequence[str], original: Any) -> str:
    """Remove objects and arrays that are empty now and were not there before the installation."""
    value = jsonc.parse(text)
    for length in range(len(path), 0, -1):
        if _get(value, path[:length]) in ({}, []) and _get(original, path[:length]) is None:
            text = jsonc.remove(text, path[:length])
            value = jsonc.parse(text)
    return text


def _get(value: Any, path: Sequence[str]) -> Any:
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _set_hook(text: str, entry: HookEntry) -> str:
    """Add a hook; unchanged if it is there, and instead of others of ours."""
    groups = _get(jsonc.parse(text), entry.path)
    own = [each for each in groups if is_own_hook(each) or _own_hooks(each)] if isinstance(groups, list) else []
    if own == [entry.value]:
        return text
    return jsonc.append(_remove_hooks(text, entry.path) if own else text, entry.path, entry.value)


def _own_hooks(group: Any) -> list[int]:
    """Return the indexes of our hooks in a group."""
    hooks = group.get("hooks") if isinstance(group, Mapping) else None
    return [n for n, each in enumerate(hooks) if is_own_hook(each)] if isinstance(hooks, list) else []


def _remove_hooks(text: str, path: Sequence[str]) -> str:
    """Remove our hooks from an array, in groups or not; a group that others use stays without them."""
    groups = _get(jsonc.parse(text), path)
    for number in reversed(range(len(groups) if isinstance(groups, list) else 0)):
        own = _own_hooks(groups[number])
        if is_own_hook(groups[number]) or (own and len(own) == len(groups[number]["hooks"])):
            text = jsonc.remove(text, [*path, number])
            continue
        for index in reversed(own):
            text = jsonc.remove(text, [*path, number, "hooks", index])
    return text


def _table_pattern(name: str) -> re.Pattern[str]:
    """Return the pattern of a table with its own lines, and the empty line before it."""
    header = r"[ \t]*\.[ \t]*".join(re.escape(part) for part in name.split("."))
    return re.compile(rf"(?:^|(?<=\n))(?:[ \t]*\r?\n)?\[[ \t]*{header}[ \t]*\][^\n]*(?:\n(?![ \t]*\[)[^\n]*)*\n?")


def _set_table(text: str, table: TomlTable) -> str:
    if _get(tomllib.loads(text), table.name.split(".")) == table.values:
        return text
    newline = "\r\n" if "\r\n" in text else "\n"
    base = _remove_table(text, table.name)
    if base and not base.endswith("\n"):
        base += newline
    lines = [f"[{table.name}]", *(f"{name} = {_dump_toml(value)}" for name, value in table.values.items())]
    added = base + (newline if base else "") + newline.join(lines) + newline
    _check_tables(tomllib.loads(base), added, table)
    return added


def _dump_toml(value: Any) -> str:
    # Strings and arrays of strings are written alike.
    return json.dumps(value)


def _remove_table(text: str, name: str) -> str:
    """Remove a table, its lines and the empty line before it."""
    before = tomllib.loads(text)
    if _get(before, name.split(".")) is None:
        return text
    removed = _table_pattern(name).sub("", text, count=1)
    *path, last = name.split(".")
    _get(before, path).pop(last)
    after = tomllib.loads(removed)
    if not _get(before, path) and _get(after, path) is None:
        before.pop(path[0])
    if after != before:
        raise tomllib.TOMLDecodeError(f"{name} is not a table of its own: remove it by hand")
    return removed


def _check_tables(base: Mapping[str, Any], text: str, table: TomlTable) -> None:
    """Raise an error unless the text differs from the base by the table alone."""
    try:
        expected = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        raise tomllib.TOMLDecodeError(f"{table.name} cannot be added as a table: add it by hand") from None
    *path, last = table.name.split(".")
    _get(expected, path).pop(last)
    if not _get(expected, path) and _get(base, path) is None:
        expected.pop(path[0])
    if expected != base:
        raise tomllib.TOMLDecodeError(f"{table.name} cannot be added as a table: add it by hand")
