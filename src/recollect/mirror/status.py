"""The lock of a mirrored folder, and its status."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from recollect.mirror.layout import STATE_FOLDER
from recollect.mirror.state import ConflictFile, MirrorState, RejectedFile

_LOCK_FILE = "lock"
STATE_FILE = "mirror.db"


def make_state_folder(root: Path) -> Path:
    """Return the folder of the mirror's own state; create it if necessary."""
    folder = root / STATE_FOLDER
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


class MirrorLock:
    """A file lock, so that one process at a time mirrors a folder; it ends with the process."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._handle: int | None = None

    def acquire(self) -> bool:
        """Acquire the lock, or return False if another process has it."""
        if self._handle is not None:
            return True
        handle = os.open(
            make_state_folder(self._root) / _LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
        )
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            return False
        os.truncate(handle, 0)
        os.write(handle, f"{os.getpid()}\n".encode())
        self._handle = handle
        return True

    def release(self) -> None:
        """Release the lock."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


def locking_process(root: Path) -> int | None:
    """Return the id of the process that mirrors a folder; None if none does."""
    lock = MirrorLock(root)
    if not (root / STATE_FOLDER / _LOCK_FILE).exists():
        return None
    if lock.acquire():
        lock.release()
        return None
    text = (root / STATE_FOLDER / _LOCK_FILE).read_text().strip()
    return int(text) if text.isdigit() else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorStatus:
    """The status of a folder: its process, counts, rejected files and conflicts."""

    folder: Path
    process: int | None = None
    synced_at: str | None = None
    counts: Mapping[str, int] = field(default_factory=dict)
    users: int = 0
    rejected: Sequence[RejectedFile] = ()
    conflicts: Sequence[ConflictFile] = ()
    versions: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "folder": str(self.folder),
            "mirrored_by": self.process,
            "synced_at": self.synced_at,
            **self.counts,
            "users": self.users,
            "versions": self.versions,
            "aside": [{"path": file.path, "reason": file.reason, "since": file.at} for file in self.rejected],
            "conflicts": [
                {"path": conflict.path, "id": conflict.id, "since": conflict.at} for conflict in self.conflicts
            ],
        }


def read_mirror_status(root: Path) -> MirrorStatus:
    """Return the status of the mirror in a folder; `synced_at` is None if it was never synchronised."""
    path = root / STATE_FOLDER / STATE_FILE
    if not path.exists():
        return MirrorStatus(folder=root, counts={"memories": 0, "tombstones": 0})
    state = MirrorState(path, read_only=True)
    try:
        # A removed file is a resolved conflict.
        conflicts = [conflict for conflict in state.conflicts() if (root / conflict.path).exists()]
        return MirrorStatus(
            folder=root,
            process=locking_process(root),
            synced_at=state.meta("synced_at"),
            counts=state.count(),
            users=len(state.users()),
            rejected=state.rejected_files(),
            conflicts=conflicts,
            versions=(root / ".git").is_dir(),
        )
    finally:
        state.close()
