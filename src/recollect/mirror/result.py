"""The result of a synchronisation, and the commit message that describes it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from recollect.mirror.layout import CONFLICTS, parse_location

_KINDS = {"user": "turn", "assistant": "turn", "memory": "fact", "summary": "summary"}


@dataclass(slots=True)
class SyncResult:
    """The result of a synchronisation: memories changed by files, and files changed by memories.

    `ingested` are paths that a person changed, `written` and `removed` those that the mirror changed. `users` are
    those whose files changed. `is_whole` says that all files were compared.
    """

    added: int = 0
    edited: int = 0
    forgotten: int = 0
    restored: int = 0
    conflicts: int = 0
    bad: int = 0
    ingested: list[str] = field(default_factory=list)
    written: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    users: set[str] = field(default_factory=set)
    is_whole: bool = False

    @property
    def changed(self) -> list[str]:
        """Return the changed paths, whoever changed them."""
        return [*self.ingested, *self.written, *self.removed]

    @property
    def commit_message(self) -> str:
        """Return one line, such as "Write 2 turns and 1 fact; remove 1 fact (1 edited by hand)"."""
        by_hand = {"added": self.added, "edited": self.edited, "deleted": self.forgotten, "restored": self.restored}
        manual_changes = ", ".join(f"{count} {how}" for how, count in by_hand.items() if count)
        written, removed = _count_kinds(self.written), _count_kinds(self.removed)
        parts = [f"write {written}" if written else "", f"remove {removed}" if removed else ""]
        summary = "; ".join(filter(None, parts)) or "keep files"
        return summary[0].upper() + summary[1:] + (f" ({manual_changes} by hand)" if manual_changes else "")


def _count_kinds(paths: Iterable[str]) -> str:
    kinds = Counter(map(_kind, paths))
    counts = [f"{count} {kind if count == 1 else _plural(kind)}" for kind, count in sorted(kinds.items())]
    return " and ".join([", ".join(counts[:-1]), counts[-1]] if len(counts) > 1 else counts)


def _kind(path: str) -> str:
    location = parse_location(path)
    if location is None:
        return "conflict" if CONFLICTS in path else "file"
    return "tombstone" if location.is_tombstone else _KINDS[location.role]


def _plural(kind: str) -> str:
    return "summaries" if kind == "summary" else f"{kind}s"
