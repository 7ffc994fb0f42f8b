"""Who mirrors a folder: one process at a time, told by a lock that goes with it."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from recollect.mirror.layout import STATE_FOLDER

_LOCK_FILE = "lock"
STATE_FILE = "mirror.db"


def make_state_folder(root: Path) -> Path:
    """Where the mirror keeps what is its own; made if need be."""
    folder = root / STATE_FOLDER
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


class MirrorLock:
    """The lock of a folder, while it is held."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._handle: int | None = None

    @property
    def is_acquired(self) -> bool:
        """Whether this process mirrors the folder."""
        return self._handle is not None

    def acquire(self) -> bool:
        """Take it, unless another process has it."""
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
        """Let another process have it."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


def locking_process(root: Path) -> int | None:
    """The process that mirrors a folder; None if nobody does."""
    lock = MirrorLock(root)
    if not (root / STATE_FOLDER / _LOCK_FILE).exists():
        return None
    if lock.acquire():
        lock.release()
        return None
    text = (root / STATE_FOLDER / _LOCK_FILE).read_text().strip()
    return int(text) if text.isdigit() else 0
