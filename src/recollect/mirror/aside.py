"""Files that cannot be used: they stay where they are, and are shown with the reason."""

from __future__ import annotations

import logging

from recollect.mirror.state import Bad, State
from recollect.model.times import now

_log = logging.getLogger("recollect")


def leave_aside(path: str, reason: str, *, stamp: str, state: State) -> None:
    """Note that a file cannot be used as it stood by its stamp, and why; once it changes it is looked at again."""
    state.set_bad(Bad(path, stamp, "", reason, now().isoformat()))
    _log.warning("mirror: %s is left aside: %s", path, reason)
