"""Restore a backup atomically, and repeat the erasures that followed it."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from recollect.config.settings import Settings, ledger_path
from recollect.errors import Conflict, InvalidInput, RecollectError, StoreBusy, StoreCorrupt
from recollect.ledger.backup_file import Backup, remove_database_files, unseal_backup, verify_backup
from recollect.ledger.sqlite_connection import make_single_file
from recollect.model.change import Author
from recollect.model.erasure import Erasure
from recollect.model.key import ApiKey
from recollect.model.times import now
from recollect.service.service import Service
from recollect.service.transfer import publish_file

__all__ = ["RestoreReport", "restore", "verify_backup"]

ServiceOpener: TypeAlias = Callable[[Settings], Awaitable[Service]]
_POSTGRES = ("postgresql://", "postgres://")
_AUTHOR = Author("restore", "erased after the backup was made")


@dataclass(frozen=True, slots=True)
class RestoreReport:
    """The restored backup, the numbers of repeated erasures and revocations, and the replaced ledger."""

    backup: Backup
    erased: int
    revoked: int
    replaced: Path | None = None


@dataclass(frozen=True, slots=True)
class _LaterChanges:
    """Erasures and revocations after the backup, which a restore must not undo."""

    erasures: tuple[Erasure, ...] = ()
    keys: tuple[ApiKey, ...] = ()


async def restore(
    path: Path,
    settings: Settings,
    open_service: ServiceOpener,
    *,
    erasures: Sequence[Erasure] | None = None,
    force: bool = False,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> RestoreReport:
    """Verify a backup and make it the ledger that the settings name.

    Later erasures, of the replaced ledger and of `erasures`, are repeated before the ledger is in place. PostgreSQL
    must be empty. An existing SQLite ledger is replaced only with `force`, and kept under another name.
    """
    backup = await asyncio.to_thread(verify_backup, path)
    if settings.database in ("memory:", ":memory:"):
        raise InvalidInput("a ledger in memory cannot be restored: name a file or a PostgreSQL database")
    if settings.database.startswith(_POSTGRES):
        async with _opened(settings, open_service) as service:
            await service.transfer.restore_into(path, progress)
        erased, revoked = await _replay_later_changes(settings, open_service, _LaterChanges(tuple(erasures or ())))
        return RestoreReport(backup, erased, revoked)
    target = ledger_path(settings)
    later = await _read_later_changes(settings, open_service, erasures, force=force)
    part = target.with_name(f"{target.name}.{os.getpid()}.part")
    try:
        await asyncio.to_thread(_copy, path, part)
        # Under another name until the erasures are repeated.
        part_settings = settings.model_copy(update={"database": str(part)})
        erased, revoked = await _replay_later_changes(part_settings, open_service, later)
        replaced = await asyncio.to_thread(_put_in_place, part, target)
    finally:
        await asyncio.to_thread(remove_database_files, part)
    return RestoreReport(backup, erased, revoked, replaced)


@asynccontextmanager
async def _opened(settings: Settings, open_service: ServiceOpener) -> AsyncIterator[Service]:
    service = await open_service(settings)
    try:
        yield service
    finally:
        await service.close()


async def _read_later_changes(
    settings: Settings, open_service: ServiceOpener, erasures: Sequence[Erasure] | None, *, force: bool
) -> _LaterChanges:
    """Return the later changes of the replaced ledger and of `erasures`."""
    target = ledger_path(settings)
    if not await asyncio.to_thread(target.exists):
        return _LaterChanges(tuple(erasures or ()))
    if not force:
        raise Conflict(f"{target} exists; --force replaces it and keeps it under another name")
    try:
        async with _opened(settings, open_service) as service:
            recorded = await service.erasure.list(None)
            keys = await service.api_keys.list_keys(None)
    except RecollectError as error:
        if erasures is None:
            raise Conflict(
                f"the later erasures cannot be read from {target} ({error}): give the receipts with --erasures, "
                "an empty file if there are none"
            ) from error
        recorded, keys = [], []
    additional = [each for each in erasures or () if each.id not in {one.id for one in recorded}]
    return _LaterChanges((*recorded, *additional), tuple(keys))


async def _replay_later_changes(
    settings: Settings, open_service: ServiceOpener, later: _LaterChanges
) -> tuple[int, int]:
    """Repeat erasures and revocations; return their numbers."""
    revoked = {key.id for key in later.keys if key.revoked_at is not None}
    async with _opened(settings, open_service) as service:
        receipts = await service.erasure.replay(later.erasures, by=_AUTHOR)
        keys = await service.api_keys.list_keys(None)
        live = [key for key in keys if key.id in revoked and key.revoked_at is None]
        for key in live:
            await service.api_keys.revoke(key.id)
    return len(receipts), len(live)


def _copy(backup: Path, part: Path) -> None:
    part.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    shutil.copyfile(backup, part)
    unseal_backup(part)


def _put_in_place(part: Path, target: Path) -> Path | None:
    make_single_file(part)
    replaced = None
    if target.exists():
        try:
            if not make_single_file(target):
                raise StoreBusy(f"{target} is in use: stop the servers and workers on it, and restore again")
        except StoreCorrupt:
            pass  # A damaged ledger is a reason to restore.
        replaced = target.with_name(f"{target.name}.replaced-{now():%Y%m%dT%H%M%S}")
        # SQLite would apply an old log to the new file.
        for tail in ("-wal", "-shm"):
            if (sidecar := Path(f"{target}{tail}")).exists():
                os.replace(sidecar, f"{replaced}{tail}")
        _keep_replaced(target, replaced)
    publish_file(part, target)
    return replaced


def _keep_replaced(target: Path, replaced: Path) -> None:
    """Rename a file; with a hard link, if supported, so that it exists under its name until it is replaced."""
    try:
        os.link(target, replaced)
    except OSError:
        os.replace(target, replaced)
