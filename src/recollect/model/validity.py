"""When a memory held: the rule that recall as of a moment goes by."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from recollect.model.memory import MemoryRecord, Status
from recollect.model.query import Filter, Listing, Not, Op, Where, both
from recollect.model.times import now

# What is forgotten today, or waits for review, holds at no moment; how it stood before, history tells.
EFFECTIVE_STATUSES = (Status.ACTIVE, Status.SUPERSEDED)


def is_valid_now(record: MemoryRecord, moment: datetime) -> bool:
    """Whether recall may find the memory at this moment: active, begun, and not yet ended or expired."""
    return (
        record.status is Status.ACTIVE
        and (record.valid_from is None or record.valid_from <= moment)
        and (record.valid_to is None or record.valid_to > moment)
        and (record.expires_at is None or record.expires_at > moment)
    )


def valid_at(record: MemoryRecord, moment: datetime) -> bool:
    """Whether the memory held at that moment, going by what is known of it today.

    It begins at `valid_from`, or when it was made; it ends at `valid_to`, or when another took its place, or when it
    expires. The first instant belongs to it, the last does not. When a thing happened (`occurred_at`) has no say:
    that Ann moved in 2019 was not known before it was told.
    """
    if record.status not in EFFECTIVE_STATUSES or (record.valid_from or record.created_at) > moment:
        return False
    ended = record.valid_to
    if ended is None and record.status is Status.SUPERSEDED:
        # Superseding notes its moment in `valid_to`; where someone else set the status, the last change is nearest.
        ended = record.updated_at
    return (ended is None or ended > moment) and (record.expires_at is None or record.expires_at > moment)


def exclude_expired(listing: Listing, *, coarse: bool = False) -> Listing:
    """The listing without what has expired, unless it asks by that time, or for other states than active ones.

    A `coarse` one is the same for a minute, so that what it finds can be given again.
    """
    if listing.statuses != (Status.ACTIVE,) or _has_field("expires_at", listing.filter):
        return listing
    moment = now()
    at = moment.replace(second=0, microsecond=0) if coarse else moment
    return replace(listing, filter=both(listing.filter, Not(Where("expires_at", Op.LTE, at))))


def _has_field(field: str, filter: Filter) -> bool:
    if isinstance(filter, Where):
        return filter.field == field
    parts = (filter.part,) if isinstance(filter, Not) else filter.parts
    return any(_has_field(field, part) for part in parts)
