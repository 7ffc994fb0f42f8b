"""Watch the folder: which paths someone touched, in batches, as soon as a burst of changes pauses."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator
from pathlib import Path

from recollect.mirror.layout import CONFLICTS, ENTRIES, USERS, is_of_interest

_log = logging.getLogger("recollect")
# A burst is waited for this long at most, and is over after a pause of a step.
_DEBOUNCE_MS = 400
_STEP_MS = 50
_POLL_MS = 1000
_WATCHED = (ENTRIES, USERS, CONFLICTS)


async def watch(root: Path, stop: asyncio.Event) -> AsyncIterator[set[str]]:
    """Paths below the root that were added, changed or removed; of a folder that came or went, the folder's.

    Where the system watches no more files, they are polled.
    """
    from watchfiles import awatch

    def wanted(_change: object, path: str) -> bool:
        return _is_watched(_inside(path, root))

    for polls in (False, True):
        try:
            async for changes in awatch(
                root,
                watch_filter=wanted,
                debounce=_DEBOUNCE_MS,
                step=_STEP_MS,
                stop_event=stop,
                force_polling=polls,
                poll_delay_ms=_POLL_MS,
                ignore_permission_denied=True,
                raise_interrupt=False,
            ):
                yield {_inside(path, root) for _, path in changes}
            return
        except OSError as error:
            if polls:
                raise
            _log.warning("mirror: files are polled, since the system does not watch more of them: %s", error)


def _inside(path: str, root: Path) -> str:
    return os.path.relpath(path, root).replace(os.sep, "/")


def _is_watched(path: str) -> bool:
    parts = path.split("/")
    if parts[0] not in _WATCHED or any(part.startswith(".") for part in parts):
        return False
    # What has an ending is a file, and only some are memories; what has none may be a folder.
    return is_of_interest(parts[-1]) or "." not in parts[-1]
