"""All routes of this door."""

from __future__ import annotations

from starlette.routing import BaseRoute

from recollect.http.doors.own.admin import admin
from recollect.http.doors.own.changes import changes
from recollect.http.doors.own.erasing import erasing
from recollect.http.doors.own.finding import finding
from recollect.http.doors.own.jobs import jobs
from recollect.http.doors.own.memories import memories
from recollect.http.doors.own.past import past
from recollect.http.doors.own.reviews import reviews
from recollect.http.doors.own.talking import talking
from recollect.http.doors.own.tending import tending
from recollect.http.doors.own.transfer import transfer

_PARTS = (memories, finding, talking, past, reviews, jobs, changes, transfer, erasing, tending, admin)


def own_routes() -> list[BaseRoute]:
    """The routes one by one, so that whoever walks the app's routes sees each of them."""
    return [route for part in _PARTS for route in part.routes]
