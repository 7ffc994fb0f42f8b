"""GET /metrics: the numbers of all processes of this server, as Prometheus reads them."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Request, Response

from recollect.http.doors.own.answers import error_responses
from recollect.observe.exposition import CONTENT_TYPE, render_metrics
from recollect.observe.processes import collect_metrics

metrics_router = APIRouter(tags=["health"], generate_unique_id_function=lambda route: route.name)
_METRICS_EXAMPLE = '# TYPE recollect_jobs gauge\nrecollect_jobs{state="waiting"} 0\n'


@metrics_router.get(
    "/metrics",
    response_class=Response,
    responses={
        200: {
            "description": "The numbers.",
            "content": {"text/plain": {"schema": {"type": "string"}, "example": _METRICS_EXAMPLE}},
        },
        **error_responses(400, 401, 403, 421, 500, 503),
    },
)
async def metrics(request: Request) -> Response:
    """Counters, gauges and histograms in Prometheus's text format; no user, id or text is in them."""
    request.app.state.safekeeping.count()
    # Of several processes it reads files.
    text = await asyncio.to_thread(lambda: render_metrics(collect_metrics()))
    return Response(text, media_type=CONTENT_TYPE)


# Whoever only looks whether it answers asks for no body; it is the same otherwise.
metrics_router.add_api_route("/metrics", metrics, methods=["HEAD"], include_in_schema=False)
