"""Routes for search and recall."""

from __future__ import annotations

from typing import Annotated

from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field

from recollect.http.api.responses import json_response
from recollect.http.api.schemas import Filter, JsonObject, MemoryHit, optional_field
from recollect.http.api.sessions import Messages, dump_messages
from recollect.http.params import Count, Embedding, IntegralFloat, StrictModel, Text, Time, UnitFloat, example
from recollect.http.routing import ScopeDep, ServiceDep, SettingsDep, create_api_router
from recollect.model.arguments import parse_messages, parse_time
from recollect.model.query import both, parse_filter
from recollect.model.result import RecallOutcome
from recollect.model.times import now
from recollect.recall import RecallRequest
from recollect.search import SearchRequest
from recollect.text.time_expressions import parse_time_filter

search_router = create_api_router("search and recall")


class QueryOptions(StrictModel):
    """Options of search and recall."""

    filters: Filter = Field(default_factory=lambda: Filter({}))
    min_score: UnitFloat = optional_field()
    at: Time | None = Field(default=None, description='The time that "last March" is relative to; by default now.')
    as_of: Time | None = Field(default=None, description="Answer from what was valid at this time.")
    trace: bool = Field(default=False, description="Return every candidate with its scores and why it was dropped.")


class SearchBody(QueryOptions):
    """A search."""

    model_config = example(query="What is the budget for the trip?", limit=5, explain=True)

    query: Text
    limit: Annotated[Count, Field(description="By default `search_limit`.")] = optional_field()
    explain: bool = Field(default=False, description="Return the reason for each result in words.")
    embedding: Embedding = optional_field()


class RecallBody(QueryOptions):
    """The messages to recall memories for."""

    model_config = example(messages=[{"role": "user", "content": "What is my budget for Hawaii?"}])

    messages: Messages
    limit: Annotated[int, Field(ge=0, le=1000, description="By default `search_limit`."), IntegralFloat] = (
        optional_field()
    )
    is_fact: bool | None = Field(default=None, description="Whether it asks for general knowledge, if known.")
    requires_tool: bool | None = Field(default=None, description="Whether a tool will answer it, if known.")


class CandidateResponse(BaseModel):
    """A candidate in a trace."""

    id: str
    memory: str
    score: float
    relevance: float
    decision: str = Field(description="`selected`, or why it was dropped.")
    scores: dict[str, float]
    features: dict[str, float]


class SearchResponse(BaseModel):
    """The matching memories and turns, best first."""

    results: list[MemoryHit]
    steps_us: dict[str, float] = Field(description="The duration of each step in microseconds.")
    notes: list[str]
    candidates: list[CandidateResponse]


class RecallContext(BaseModel):
    """The text block for the prompt, and the ids of the memories that it uses, cuts, drops and flags."""

    text: str
    tokens: int
    used: list[str]
    cut: dict[str, str]
    dropped: dict[str, str]
    flagged: dict[str, str]


class RecallResponse(BaseModel):
    """The recalled memories, the text block, and the messages with the block inserted."""

    outcome: RecallOutcome
    reason: str
    query: str = Field(description="The query that was searched for.")
    results: list[MemoryHit]
    context: RecallContext
    messages: list[JsonObject]
    steps_us: dict[str, float]
    notes: list[str]
    candidates: list[CandidateResponse]


@search_router.post("/search", response_model=SearchResponse)
async def search(body: SearchBody, scope: ScopeDep, service: ServiceDep, settings: SettingsDep) -> JSONResponse:
    """Return the memories and turns that match a question, best first, with scores from 0 to 1."""
    times = parse_time_filter(body.query, at=parse_time(body.at, name="at") or now(), mode=settings.time_words)
    result = await service.search(
        scope,
        SearchRequest(
            query=body.query,
            limit=settings.search_limit if body.limit is None else body.limit,
            filter=both(parse_filter(body.filters.root), times.filter),
            min_score=settings.search_min_score if body.min_score is None else body.min_score,
            vector=await service.check_embedding(body.embedding),
            as_of=parse_time(body.as_of, name="as_of"),
            periods=times.periods,
            explain=body.explain,
            trace=body.trace,
        ),
    )
    return json_response(
        {
            **result.to_dict(),
            "steps_us": {step: round(duration, 1) for step, duration in result.steps_us.items()},
            "notes": list(result.notes),
            "candidates": [each.to_dict() for each in result.candidates],
        }
    )


@search_router.post("/recall", response_model=RecallResponse)
async def recall(body: RecallBody, scope: ScopeDep, service: ServiceDep, settings: SettingsDep) -> JSONResponse:
    """Return the memories that help to answer the last message, as a text block and inserted into the messages.

    If memory is unavailable the outcome says so and the messages are unchanged.
    """
    result = await service.recall(
        scope,
        RecallRequest(
            messages=parse_messages(dump_messages(body.messages)),
            at=parse_time(body.at, name="at") or now(),
            limit=settings.search_limit if body.limit is None else body.limit,
            min_score=settings.search_min_score if body.min_score is None else body.min_score,
            filter=parse_filter(body.filters.root),
            as_of=parse_time(body.as_of, name="as_of"),
            is_fact=body.is_fact,
            requires_tool=body.requires_tool,
            trace=body.trace,
        ),
    )
    return json_response(result)
