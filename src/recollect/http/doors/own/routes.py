"""All routes of this door."""

from __future__ import annotations

from starlette.routing import BaseRoute

from recollect.http.doors.own.admin import admin_router
from recollect.http.doors.own.changes import changes_router
from recollect.http.doors.own.erasing import erasure_router
from recollect.http.doors.own.finding import search_router
from recollect.http.doors.own.jobs import jobs_router
from recollect.http.doors.own.memories import memories_router
from recollect.http.doors.own.past import history_router
from recollect.http.doors.own.reviews import reviews_router
from recollect.http.doors.own.talking import sessions_router
from recollect.http.doors.own.tending import maintenance_router
from recollect.http.doors.own.transfer import transfer_router

_API_ROUTERS = (
    memories_router,
    search_router,
    sessions_router,
    history_router,
    reviews_router,
    jobs_router,
    changes_router,
    transfer_router,
    erasure_router,
    maintenance_router,
    admin_router,
)


def api_routes() -> list[BaseRoute]:
    """The routes one by one, so that whoever walks the app's routes sees each of them."""
    return [route for router in _API_ROUTERS for route in router.routes]
