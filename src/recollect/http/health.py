"""Is it up, is it ready, what is it: the routes operators and load balancers ask."""

from __future__ import annotations

import asyncio
import sys
from typing import Literal

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field

from recollect import __version__
from recollect.errors import RecollectError
from recollect.http.late_service import service_of
from recollect.models.embedding import EmbeddingModel
from recollect.settings import Settings

router = APIRouter(tags=["health"])
# Who asks whether it is ready does not wait for a store that hangs.
_READY_S = 2.0


class Alive(BaseModel):
    """The process answers."""

    status: Literal["ok"] = "ok"


class Health(BaseModel):
    """The process answers, and this is how it is set up."""

    status: Literal["ok"] = "ok"
    version: str = Field(examples=["0.1.0"])
    embedding_model: str = Field(examples=["recollect-static-1"])
    dimensions: int = Field(examples=[256])
    preset: str = Field(examples=[""])


class ProxyHealth(Health):
    """The same with what clients of the Markdown memory proxy look for, in texts."""

    memory_store: str
    openai_base_url: str
    default_top_k: str


class Ready(BaseModel):
    """Whether requests can be served, and if not, what is missing."""

    status: Literal["ready", "degraded"]
    checks: dict[str, str] = Field(examples=[{"ledger": "ok"}])


class Version(BaseModel):
    """What runs here."""

    version: str = Field(examples=["0.1.0"])
    python: str = Field(examples=["3.11.7"])


@router.get("/live")
async def live() -> Alive:
    """The process is alive; it asks nothing of anything behind it."""
    return Alive()


@router.get("/health")
async def health(request: Request) -> ProxyHealth | Health:
    """The process is alive and set up like this."""
    settings: Settings = request.app.state.settings
    try:
        model = service_of(request).model
    except RecollectError:
        # It is alive all the same; whether it is ready is another question.
        model = EmbeddingModel(settings.embedder, 0)
    told = Health(
        version=__version__,
        embedding_model=model.name,
        dimensions=model.dimensions,
        preset=settings.preset,
    )
    if settings.preset != "markdown-proxy":
        return told
    return ProxyHealth(
        **told.model_dump(),
        memory_store=str(settings.home),
        openai_base_url=settings.upstream_url,
        default_top_k=str(settings.search_limit),
    )


@router.get("/ready", responses={503: {"model": Ready, "description": "Something that is needed does not answer."}})
async def ready(request: Request, response: Response) -> Ready:
    """Whether the ledger answers, with 503 if it does not; and whether what is said is being learned from."""
    try:
        service = service_of(request)
        async with asyncio.timeout(_READY_S):
            await service.ping()
            trouble = await service.care.trouble()
    except (RecollectError, TimeoutError) as error:
        response.status_code = 503
        why = str(error) or f"the ledger did not answer within {_READY_S:.0f} s"
        return Ready(status="degraded", checks={"ledger": why})
    checks = {"ledger": "ok", "jobs": trouble or "ok"}
    if request.app.state.safekeeping.is_waiting:
        checks["spilled"] = "turns wait on disk for the ledger"
    # Memories are still found and kept meanwhile, so it goes on being asked.
    return Ready(status="degraded" if trouble or len(checks) > 2 else "ready", checks=checks)


@router.get("/version")
async def version() -> Version:
    """What runs here."""
    return Version(version=__version__, python=sys.version.split()[0])
