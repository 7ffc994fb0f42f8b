"""How a mirror stands, as the files and what was last seen of them tell: nothing is opened that another may hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from recollect.mirror.hold import STATE_FILE, locking_process
from recollect.mirror.layout import STATE_FOLDER
from recollect.mirror.state import ConflictFile, MirrorState, RejectedFile


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorStatus:
    """A folder: who mirrors it, what is in it, what is left aside, and what was kept beside a person's words."""

    folder: Path
    process: int | None = None
    synced_at: str | None = None
    counts: Mapping[str, int] = field(default_factory=dict)
    users: int = 0
    rejected: Sequence[RejectedFile] = ()
    conflicts: Sequence[ConflictFile] = ()
    versions: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
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
    """How the mirror in a folder stands; one that was never brought up to date has no time."""
    path = root / STATE_FOLDER / STATE_FILE
    if not path.exists():
        return MirrorStatus(folder=root, counts={"memories": 0, "tombstones": 0})
    state = MirrorState(path, read_only=True)
    try:
        # What someone has seen to and removed is no conflict any more.
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
