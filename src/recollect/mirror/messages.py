"""What a commit of the mirror says: what kind of thing was done to how many files, and nothing of what they say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from recollect.mirror.layout import CONFLICTS, spot_of
from recollect.mirror.together import Synced

_KINDS = {"user": "turn", "assistant": "turn", "memory": "fact", "summary": "summary"}


def message_of(done: Synced) -> str:
    """One line: "Write 2 turns and 1 fact; remove 1 fact (1 edited by hand)"."""
    written = _counted([*done.put.written, *done.taken.put.written])
    removed = _counted([*done.put.removed, *done.taken.put.removed])
    taken = done.taken
    by_hand = {"added": taken.added, "edited": taken.edited, "deleted": taken.forgotten, "restored": taken.restored}
    hand = ", ".join(f"{count} {how}" for how, count in by_hand.items() if count)
    parts = [f"write {written}" if written else "", f"remove {removed}" if removed else ""]
    told = "; ".join(filter(None, parts)) or "keep files"
    return told[0].upper() + told[1:] + (f" ({hand} by hand)" if hand else "")


def _counted(paths: Iterable[str]) -> str:
    kinds = Counter(_kind(path) for path in paths)
    told = [f"{count} {kind if count == 1 else _plural(kind)}" for kind, count in sorted(kinds.items())]
    return " and ".join([", ".join(told[:-1]), told[-1]] if len(told) > 1 else told)


def _kind(path: str) -> str:
    spot = spot_of(path)
    if spot is None:
        return "conflict" if CONFLICTS in path else "file"
    return "tombstone" if spot.is_tombstone else _KINDS[spot.role]


def _plural(kind: str) -> str:
    return "summaries" if kind == "summary" else f"{kind}s"
