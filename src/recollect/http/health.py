"""Health routes for operators and load balancers: liveness, readiness, version and metrics."""

from __future__ import annotations

import asyncio
import sys
from datetime import datetime
from typing import Literal

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field

from recollect import __version__
from recollect.config.settings import Settings
from recollect.errors import RecollectError
from recollect.http.errors import Error, error_responses
from recollect.http.health_monitor import HealthMonitor
from recollect.http.upstream.learning import UpstreamModels, describe_start
from recollect.models.embedding import EmbeddingModel
from recollect.observability.prometheus import CONTENT_TYPE, collect_metrics, render_metrics

health_router = APIRouter(tags=["health"], generate_unique_id_function=lambda route: route.name)
_ERRORS = error_responses(Error, 400, 421)


class Alive(BaseModel):
    """The process answers."""

    status: Literal["ok"] = "ok"


class Health(BaseModel):
    """The process answers, with this configuration."""

    status: Literal["ok"] = "ok"
    version: str
    embedding_model: str
    dimensions: int
    preset: str
    learning: str = Field(description="The LLM that learns from chats, or why there is none.")


class ProxyHealth(Health):
    """The same with the fields that clients of the Markdown memory proxy read, as texts."""

    memory_store: str
    openai_base_url: str
    default_top_k: str


class EmbeddingModelChange(BaseModel):
    """The progress of a change of the embedding model; until it is done the previous one is searched."""

    embedding_model: str
    dimensions: int
    done: int = Field(description="The number of memories that have a vector of the new model.")
    total: int = Field(description="The number of memories.")


class Ready(BaseModel):
    """Whether requests can be served, and which parts have a problem."""

    status: Literal["ready", "degraded"]
    checks: dict[str, str]
    since: dict[str, datetime] = Field({}, description="When each problem was first noticed.")
    model_change: EmbeddingModelChange | None = Field(None, description="Set while the embedding model changes.")


class Version(BaseModel):
    """The versions of the server and of Python."""

    version: str
    python: str


@health_router.get("/live", responses=_ERRORS)
async def live() -> Alive:
    """Return whether the process is alive, without checking anything it depends on."""
    return Alive()


@health_router.get("/health", responses=_ERRORS)
async def health(request: Request) -> ProxyHealth | Health:
    """Return that the process is alive, and its configuration."""
    settings: Settings = request.app.state.settings
    try:
        model = request.app.state.service_handle.get().model
    except RecollectError:
        # The process is alive; `/ready` reports the problem.
        model = EmbeddingModel(settings.embedder, 0)
    models: UpstreamModels | None = request.app.state.models
    report = Health(
        version=__version__,
        embedding_model=model.name,
        dimensions=model.dimensions,
        preset=settings.preset,
        learning=describe_start(settings) if models is None else models.describe(),
    )
    if settings.preset != "markdown-proxy":
        return report
    return ProxyHealth(
        **report.model_dump(),
        memory_store=str(settings.home),
        openai_base_url=settings.upstream_url,
        default_top_k=str(settings.search_limit),
    )


@health_router.get(
    "/ready",
    responses={**_ERRORS, 503: {"model": Ready, "description": "The ledger is unavailable."}},
    response_model_exclude_none=True,
)
async def ready(request: Request, response: Response) -> Ready:
    """Check the ledger, with 503 if it is unavailable, and report the problems of other parts."""
    monitor: HealthMonitor = request.app.state.health_monitor
    await monitor.check()
    problems, pending = monitor.problems, monitor.pending_model
    if "ledger" in problems:
        response.status_code = 503
    checked = ("ledger",) if "ledger" in problems else ("ledger", "jobs")
    change = None
    if pending is not None:
        change = EmbeddingModelChange(
            embedding_model=pending.model.name,
            dimensions=pending.model.dimensions,
            done=pending.embedded,
            total=pending.to_embed,
        )
    return Ready(
        status="degraded" if problems else "ready",
        checks=dict.fromkeys(checked, "ok") | {part: problem.message for part, problem in problems.items()},
        since={part: problem.since for part, problem in problems.items()},
        model_change=change,
    )


@health_router.get("/version", responses=_ERRORS)
async def version() -> Version:
    """Return the versions of the server and of Python."""
    return Version(version=__version__, python=sys.version.split()[0])


@health_router.get(
    "/metrics",
    response_class=Response,
    responses={
        200: {"description": "The metrics.", "content": {"text/plain": {"schema": {"type": "string"}}}},
        **error_responses(Error, 400, 401, 403, 421, 500, 503),
    },
)
async def metrics(request: Request) -> Response:
    """Return counters, gauges and histograms in Prometheus's text format, without users, ids or texts."""
    request.app.state.resilient_memory.update_metrics()
    # With several processes it reads files.
    text = await asyncio.to_thread(lambda: render_metrics(collect_metrics()))
    return Response(text, media_type=CONTENT_TYPE)


# Some load balancers check with HEAD.
for _endpoint in (live, health, ready, version, metrics):
    health_router.add_api_route(f"/{_endpoint.__name__}", _endpoint, methods=["HEAD"], include_in_schema=False)
