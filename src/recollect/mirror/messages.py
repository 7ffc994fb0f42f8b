"""What a commit of the mirror says: what kind of thing was done to how many files, and nothing of what they say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from recollect.mirror.layout import CONFLICTS, parse_location
from recollect.mirror.together import SyncResult

_KINDS = {"user": "turn", "assistant": "turn", "memory": "fact", "summary": "summary"}


def commit_message(done: SyncResult) -> str:
    """One line: "Write 2 turns and 1 fact; remove 1 fact (1 edited by hand)"."""
    written = _count_kinds([*done.writes.written, *done.ingested.writes.written])
    removed = _count_kinds([*done.writes.removed, *done.ingested.writes.removed])
    ingested = done.ingested
    by_hand = {
        "added": ingested.added,
        "edited": ingested.edited,
        "deleted": ingested.forgotten,
        "restored": ingested.restored,
    }
    manual_changes = ", ".join(f"{count} {how}" for how, count in by_hand.items() if count)
    parts = [f"write {written}" if written else "", f"remove {removed}" if removed else ""]
    summary = "; ".join(filter(None, parts)) or "keep files"
    return summary[0].upper() + summary[1:] + (f" ({manual_changes} by hand)" if manual_changes else "")


def _count_kinds(paths: Iterable[str]) -> str:
    kinds = Counter(_kind(path) for path in paths)
    counts = [f"{count} {kind if count == 1 else _plural(kind)}" for kind, count in sorted(kinds.items())]
    return " and ".join([", ".join(counts[:-1]), counts[-1]] if len(counts) > 1 else counts)


def _kind(path: str) -> str:
    location = parse_location(path)
    if location is None:
        return "conflict" if CONFLICTS in path else "file"
    return "tombstone" if location.is_tombstone else _KINDS[location.role]


def _plural(kind: str) -> str:
    return "summaries" if kind == "summary" else f"{kind}s"
