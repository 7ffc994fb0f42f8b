"""GET /metrics: the numbers of all processes of this server, as Prometheus reads them."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Request, Response
from fastapi.responses import PlainTextResponse

from recollect.observe.exposition import CONTENT_TYPE, exposition
from recollect.observe.processes import collected

router = APIRouter(tags=["health"])


@router.get("/metrics", response_class=PlainTextResponse)
async def metrics(request: Request) -> Response:
    """Counters, gauges and histograms in Prometheus's text format; no user, id or text is in them."""
    request.app.state.safekeeping.count()
    # Of several processes it reads files.
    text = await asyncio.to_thread(lambda: exposition(collected()))
    return Response(text, media_type=CONTENT_TYPE)
