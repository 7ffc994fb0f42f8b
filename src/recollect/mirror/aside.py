"""Files that cannot be used: they stay where they are, and are shown with the reason."""

from __future__ import annotations

import logging

from recollect.errors import InvalidInput
from recollect.mirror.folder import Folder
from recollect.mirror.outgoing import digest_of
from recollect.mirror.state import Bad, State
from recollect.model.times import now

_log = logging.getLogger("recollect")


def leave_aside(path: str, reason: str, *, folder: Folder, state: State) -> None:
    """Note that a file cannot be used, and why; it is looked at again once it changes."""
    stamp = folder.stamp(path)
    try:
        digest = digest_of(folder.read(path)[0])
    except (InvalidInput, OSError):
        digest = ""
    state.set_bad(Bad(path, stamp.text if stamp else "", digest, reason, now().isoformat()))
    _log.warning("mirror: %s is left aside: %s", path, reason)
