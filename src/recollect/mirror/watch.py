"""Watch the folder, and report changed paths in batches."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path

from recollect.mirror.layout import CONFLICTS, MEMORY_FOLDERS, is_memory_file, parse_location

_log = logging.getLogger("recollect")
# A batch ends after this time at the latest, or after a pause of one step.
_DEBOUNCE_MS = 400
_STEP_MS = 50
_POLL_MS = 1000
_STOP_MS = 200
_WATCHED_FOLDERS = (*MEMORY_FOLDERS, CONFLICTS)


class FolderWatcher:
    """Reports paths below a folder that were added, changed or removed; a folder's own path if it was.

    It runs in a thread, since starting to watch many folders takes time. Folders are polled if the system cannot
    watch them.
    """

    def __init__(self, root: Path, on_change: Callable[[set[str]], None]) -> None:
        # Changes are reported by real paths, and the path to the folder may contain links.
        self._root = root.resolve()
        self._on_change = on_change
        self._loop = asyncio.get_running_loop()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="recollect-mirror", daemon=True)
        self._thread.start()

    async def close(self) -> None:
        """Stop watching."""
        self._stop.set()
        await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        for polls in (False, True):
            try:
                self._watch(polls=polls)
                return
            except Exception as error:
                if polls:
                    _log.error("mirror: files are not watched, only compared now and then: %s", error)
                else:
                    _log.warning("mirror: files are polled, since the system cannot watch them: %s", error)

    def _watch(self, *, polls: bool) -> None:
        from watchfiles import watch

        for changes in watch(
            self._root,
            watch_filter=lambda _, path: _is_watched(self._relative_path(path)),
            debounce=_DEBOUNCE_MS,
            step=_STEP_MS,
            rust_timeout=_STOP_MS,
            stop_event=self._stop,
            force_polling=polls,
            poll_delay_ms=_POLL_MS,
            ignore_permission_denied=True,
        ):
            paths = {self._relative_path(path) for _, path in changes}
            if not self._stop.is_set():
                self._loop.call_soon_threadsafe(self._on_change, paths)

    def _relative_path(self, path: str) -> str:
        return os.path.relpath(path, self._root).replace(os.sep, "/")


def _is_watched(path: str) -> bool:
    parts = path.split("/")
    if parts[0] not in _WATCHED_FOLDERS or any(part.startswith(".") for part in parts):
        return False
    # A name without a suffix may be a folder.
    return is_memory_file(parts[-1]) or "." not in parts[-1] or parse_location(path) is not None
