"""Files that cannot be used: they stay where they are, and are shown with the reason."""

from __future__ import annotations

import logging

from recollect.mirror.state import MirrorState, RejectedFile
from recollect.model.times import now

_log = logging.getLogger("recollect")


def reject_file(path: str, reason: str, *, stamp: str, state: MirrorState) -> None:
    """Note that a file cannot be used as it stood by its stamp, and why; once it changes it is looked at again."""
    state.set_rejected(RejectedFile(path, stamp, "", reason, now().isoformat()))
    _log.warning("mirror: %s is left aside: %s", path, reason)
