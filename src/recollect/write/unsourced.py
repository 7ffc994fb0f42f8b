"""Changes that cite nothing: what they were learned from is in no log."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from recollect.model.change import Add, Change, Supersede, Update


def drop_turn_evidence(change: Change, ids: Collection[str]) -> Change:
    """The change without these among its evidence."""
    if isinstance(change, (Add, Supersede)):
        evidence = tuple(id for id in change.record.evidence if id not in ids)
        return replace(change, record=replace(change.record, evidence=evidence))
    if isinstance(change, Update) and "evidence" in change.fields:
        cited = [id for id in change.fields["evidence"] if id not in ids]
        return replace(change, fields={**change.fields, "evidence": cited})
    return change
