"""When a memory is valid, and which memories were valid at a moment."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from recollect.model.memory import MemoryRecord, Status
from recollect.model.query import Filter, Listing, Not, Op, Where, both
from recollect.model.times import now

# Forgotten memories, and those in review, are valid at no moment; history tells their earlier state.
EFFECTIVE_STATUSES = (Status.ACTIVE, Status.SUPERSEDED)


def is_valid_now(record: MemoryRecord, moment: datetime) -> bool:
    """Return whether recall may find the memory at this moment: active, begun, and not ended or expired."""
    return (
        record.status is Status.ACTIVE
        and (record.valid_from is None or record.valid_from <= moment)
        and (record.valid_to is None or record.valid_to > moment)
        and (record.expires_at is None or record.expires_at > moment)
    )


def valid_at(record: MemoryRecord, moment: datetime) -> bool:
    """Return whether the memory was valid at that moment, by its present fields.

    It begins at `valid_from`, or when it was created; it ends at `valid_to`, or when it was superseded, or when it
    expires. The first instant is included, the last is not. `occurred_at` does not matter: that Ann moved in 2019 was
    not known before it was said.
    """
    if record.status not in EFFECTIVE_STATUSES or (record.valid_from or record.created_at) > moment:
        return False
    ended = record.valid_to
    if ended is None and record.status is Status.SUPERSEDED:
        # Superseding sets `valid_to`; where only the status was set, the last update is the best estimate.
        ended = record.updated_at
    return (ended is None or ended > moment) and (record.expires_at is None or record.expires_at > moment)


def exclude_expired(listing: Listing, *, coarse: bool = False) -> Listing:
    """Return the listing without expired memories, unless it filters by expiry or lists other statuses.

    A `coarse` one is the same for a minute, so that its result can be cached.
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
