"""Routes for the last recalls: what was asked, what went into the prompt, and why."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import Path
from fastapi.responses import JSONResponse
from pydantic import Field

from recollect.errors import NotFound
from recollect.http.api.memories import CandidateResponse, RecallContext, TraceResponse
from recollect.http.api.schemas import Limit, ListOf, MemoryHit, json_response
from recollect.http.params import ResponseModel
from recollect.http.routing import ScopeDep, ServiceDep, create_api_router
from recollect.model.result import RecallOutcome

recalls_router = create_api_router("search and recall")


class RecallSummary(ResponseModel):
    """A recall of a chat or a client, or a search with a trace."""

    id: str
    at: str = Field(json_schema_extra={"format": "date-time"})
    kind: Literal["recall", "search"]
    project_id: str | None
    session_id: str | None
    question: str
    query: str = Field(description="The query that was searched for.")
    outcome: RecallOutcome
    reason: str
    hits: int = Field(ge=0, description="The number of memories that were found.")
    used: int = Field(ge=0, description="The number of memories in the prompt.")
    tokens: int = Field(ge=0, description="The size of the text block.")
    total_ms: float
    traced: bool = Field(description="Whether it has a trace and candidates.")


class LoggedRecallResponse(RecallSummary):
    """A recall with the memories that were found and the exact text block."""

    results: list[MemoryHit]
    context: RecallContext
    steps_us: dict[str, float]
    notes: list[str]
    trace: TraceResponse | None
    candidates: list[CandidateResponse] = Field(description="Without features; empty unless it is traced.")


@recalls_router.get("/recalls", response_model=ListOf[RecallSummary])
async def list_recalls(scope: ScopeDep, service: ServiceDep, limit: Limit = 50) -> JSONResponse:
    """List the last recalls of the scope, newest first.

    They are kept in the memory of the server's process (`recall_log`), and removed when anything of the user is
    erased.
    """
    entries = await service.recalls(scope)
    return json_response({"results": [each.summary() for each in entries[:limit]]})


@recalls_router.get("/recalls/{recall_id}", response_model=LoggedRecallResponse)
async def get_recall(
    recall_id: Annotated[str, Path(description="The id of a recall.")], scope: ScopeDep, service: ServiceDep
) -> JSONResponse:
    """Return one of the last recalls."""
    entry = next((each for each in await service.recalls(scope) if each.id == recall_id), None)
    if entry is None:
        raise NotFound(f"no recall {recall_id}; only the last ones are kept")
    return json_response(entry)
