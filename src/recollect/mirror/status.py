"""How a mirror stands, as the files and what was last seen of them tell: nothing is opened that another may hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from recollect.mirror.hold import STATE, holder_of
from recollect.mirror.layout import OWN
from recollect.mirror.state import Bad, Kept, State


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """A folder: who mirrors it, what is in it, what is left aside, and what was kept beside a person's words."""

    folder: Path
    process: int | None = None
    synced_at: str | None = None
    counts: Mapping[str, int] = field(default_factory=dict)
    users: int = 0
    aside: Sequence[Bad] = ()
    conflicts: Sequence[Kept] = ()
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
            "aside": [{"path": bad.path, "reason": bad.reason, "since": bad.at} for bad in self.aside],
            "conflicts": [{"path": kept.path, "id": kept.id, "since": kept.at} for kept in self.conflicts],
        }


def status_of(root: Path) -> Status:
    """How the mirror in a folder stands; one that was never brought up to date has no time."""
    path = root / OWN / STATE
    if not path.exists():
        return Status(folder=root, counts={"memories": 0, "tombstones": 0})
    state = State(path, read_only=True)
    try:
        # What someone has seen to and removed is no conflict any more.
        conflicts = [kept for kept in state.kept() if (root / kept.path).exists()]
        return Status(
            folder=root,
            process=holder_of(root),
            synced_at=state.meta("synced_at"),
            counts=state.count(),
            users=len(state.users()),
            aside=state.bad(),
            conflicts=conflicts,
            versions=(root / ".git").is_dir(),
        )
    finally:
        state.close()
