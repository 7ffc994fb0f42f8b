"""Is it up, is it ready, what is it: the routes operators and load balancers ask."""

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
from recollect.http.service_provider import get_service
from recollect.http.upstream.learning import UpstreamModels, describe_start
from recollect.ledger.model_states import ModelState
from recollect.models.embedding import EmbeddingModel
from recollect.observability.prometheus import CONTENT_TYPE, collect_metrics, render_metrics

health_router = APIRouter(
    tags=["health"], responses=error_responses(Error, 400, 421), generate_unique_id_function=lambda route: route.name
)


class Alive(BaseModel):
    """The process answers."""

    status: Literal["ok"] = Field(default="ok", examples=["ok"])


class Health(BaseModel):
    """The process answers, and this is how it is set up."""

    status: Literal["ok"] = "ok"
    version: str = Field(examples=["0.1.0"])
    embedding_model: str = Field(examples=["recollect-static-1"])
    dimensions: int = Field(examples=[256])
    preset: str = Field(examples=[""])
    learning: str = Field(
        examples=["learning with gpt-5-mini via the upstream"],
        description="How memories are learned from chats: with which LLM, or without one and why.",
    )


class ProxyHealth(Health):
    """The same with what clients of the Markdown memory proxy look for, in texts."""

    memory_store: str = Field(examples=["/home/alex/.recollect"])
    openai_base_url: str = Field(examples=["http://127.0.0.1:8080/v1"])
    default_top_k: str = Field(examples=["5"])


class EmbeddingModelChange(BaseModel):
    """How far the change to another embedding model is; memories are searched by the one before until it is done."""

    embedding_model: str = Field(examples=["text-embedding-3-small"])
    dimensions: int = Field(examples=[1536])
    done: int = Field(examples=[12_000], description="Memories that have a vector of it.")
    total: int = Field(examples=[50_000], description="Memories that there are.")


class Ready(BaseModel):
    """Whether requests can be served, and if not, what is missing."""

    status: Literal["ready", "degraded"]
    checks: dict[str, str] = Field(examples=[{"ledger": "ok", "jobs": "ok"}])
    since: dict[str, datetime] = Field(
        {}, description="Since when it is known of each part that it is not well.", examples=[{}]
    )
    model_change: EmbeddingModelChange | None = Field(
        None, description="Set while the embedding model is changed; that is no trouble.", examples=[None]
    )


class Version(BaseModel):
    """What runs here."""

    version: str = Field(examples=["0.1.0"])
    python: str = Field(examples=["3.11.7"])


@health_router.get("/live")
async def live() -> Alive:
    """The process is alive; it asks nothing of anything behind it."""
    return Alive()


@health_router.get("/health")
async def health(request: Request) -> ProxyHealth | Health:
    """The process is alive and set up like this."""
    settings: Settings = request.app.state.settings
    try:
        model = get_service(request).model
    except RecollectError:
        # It is alive all the same; whether it is ready is another question.
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
    responses={503: {"model": Ready, "description": "Something that is needed does not answer."}},
    response_model_exclude_none=True,
)
async def ready(request: Request, response: Response) -> Ready:
    """Whether the ledger answers, with 503 if it does not; whether what is said is being learned from; since when."""
    monitor: HealthMonitor = request.app.state.health_monitor
    await monitor.check()
    problems = monitor.problems
    if "ledger" in problems:
        # Without it memories are neither found nor kept. Whatever else is wrong, it goes on being asked.
        response.status_code = 503
    parts = ("ledger",) if "ledger" in problems else ("ledger", "jobs")
    return Ready(
        status="degraded" if problems else "ready",
        checks=dict.fromkeys(parts, "ok") | {part: problem.message for part, problem in problems.items()},
        since={part: problem.since for part, problem in problems.items()},
        model_change=_describe_model_change(monitor.pending_model),
    )


def _describe_model_change(pending: ModelState | None) -> EmbeddingModelChange | None:
    if pending is None:
        return None
    model = pending.model
    return EmbeddingModelChange(
        embedding_model=model.name, dimensions=model.dimensions, done=pending.embedded, total=pending.to_embed
    )


@health_router.get("/version")
async def version() -> Version:
    """What runs here."""
    return Version(version=__version__, python=sys.version.split()[0])


# Whoever only looks whether it answers asks for no body; it is the same otherwise.
for _path, _answer in (("/live", live), ("/health", health), ("/ready", ready), ("/version", version)):
    health_router.add_api_route(_path, _answer, methods=["HEAD"], include_in_schema=False)


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
        **error_responses(Error, 400, 401, 403, 421, 500, 503),
    },
)
async def metrics(request: Request) -> Response:
    """Counters, gauges and histograms in Prometheus's text format; no user, id or text is in them."""
    request.app.state.resilient_memory.update_metrics()
    # Of several processes it reads files.
    text = await asyncio.to_thread(lambda: render_metrics(collect_metrics()))
    return Response(text, media_type=CONTENT_TYPE)


# Whoever only looks whether it answers asks for no body; it is the same otherwise.
metrics_router.add_api_route("/metrics", metrics, methods=["HEAD"], include_in_schema=False)
