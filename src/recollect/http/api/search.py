"""Search and recall."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from recollect.http.api.responses import error_responses, json_response
from recollect.http.api.routing import ScopeDep, ServiceDep, SettingsDep, create_router
from recollect.http.api.schemas import (
    EXAMPLE_MEMORY,
    Embedding,
    Filters,
    IntegralFloat,
    JsonObject,
    MemoryHit,
    StrictBody,
    Time,
    UnitFloat,
    example_config,
    optional_field,
)
from recollect.http.api.sessions import Messages, dump_messages
from recollect.http.params import Text
from recollect.model.arguments import parse_messages, parse_time
from recollect.model.query import both, parse_filter
from recollect.model.result import RecallOutcome
from recollect.model.text import validate_text
from recollect.model.times import now
from recollect.recall import RecallRequest
from recollect.search import SearchRequest
from recollect.text.time_expressions import parse_time_filter

search_router = create_router("search and recall")


class QueryOptions(StrictBody):
    """What both take besides what is asked."""

    filters: Filters = Field(default_factory=dict)
    min_score: UnitFloat = optional_field()
    at: Time | None = Field(default=None, description='"Last March" is meant from here; by default from now.')
    as_of: Time | None = Field(default=None, description="Answers from what held at that moment, as it was then.")
    trace: bool = Field(default=False, description="Tells every candidate with all its scores and what became of it.")


class SearchFor(QueryOptions):
    """A question to memory."""

    model_config = ConfigDict(
        json_schema_extra={"example": {"query": "What is the budget for the trip?", "limit": 5, "explain": True}}
    )

    query: Text
    limit: Annotated[int, Field(ge=1, le=1000, description="By default `search_limit`."), IntegralFloat] = (
        optional_field()
    )
    explain: bool = Field(default=False, description="Gives each hit the reason it was kept, in words.")
    embedding: Embedding = optional_field()


class RecallFor(QueryOptions):
    """What is being said, for memory to help with."""

    model_config = ConfigDict(
        json_schema_extra={"example": {"messages": [{"role": "user", "content": "What is my budget for Hawaii?"}]}}
    )

    messages: Messages
    limit: Annotated[int, Field(ge=0, le=1000, description="By default `search_limit`."), IntegralFloat] = (
        optional_field()
    )
    is_fact: bool | None = Field(default=None, description="Whether it asks for general knowledge, if you know.")
    requires_tool: bool | None = Field(default=None, description="Whether a tool will answer it, if you know.")


class CandidateResponse(BaseModel):
    """A candidate as a trace shows it."""

    id: str
    memory: str
    score: float
    relevance: float
    fate: str = Field(description="Why it was kept or left out.")
    scores: dict[str, float]
    signals: dict[str, float]


class SearchResponse(BaseModel):
    """The memories and turns that fit, best first."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "results": [
                    {**EXAMPLE_MEMORY, "score": 0.83, "scores": {"relevance": 0.83}, "why": "says budget and trip"}
                ],
                "steps_us": {"embed": 210.0},
                "notes": [],
                "candidates": [],
            }
        }
    )

    results: list[MemoryHit]
    steps_us: dict[str, float] = Field(description="How long each step took, in microseconds.")
    notes: list[str]
    candidates: list[CandidateResponse]


class RecallContext(BaseModel):
    """The block for the prompt, and what became of each memory in it."""

    text: str
    tokens: int
    used: list[str]
    cut: dict[str, str]
    dropped: dict[str, str]
    flagged: dict[str, str]


class RecallResponse(BaseModel):
    """What a recall came to: its outcome and why, the hits, the block, and the messages with it in its place."""

    model_config = example_config(
        outcome="used",
        reason="",
        query="What is my budget for Hawaii?",
        results=[{**EXAMPLE_MEMORY, "score": 0.83, "scores": {"relevance": 0.83}, "why": ""}],
        context={
            "text": "- The budget for the Hawaii trip is $10,000",
            "tokens": 14,
            "used": [EXAMPLE_MEMORY["id"]],
            "cut": {},
            "dropped": {},
            "flagged": {},
        },
        messages=[{"role": "user", "content": "What is my budget for Hawaii?"}],
        steps_us={"embed": 210.0},
        notes=[],
        candidates=[],
    )

    outcome: RecallOutcome
    reason: str
    query: str = Field(description="What was searched for in the end.")
    results: list[MemoryHit]
    context: RecallContext
    messages: list[JsonObject]
    steps_us: dict[str, float]
    notes: list[str]
    candidates: list[CandidateResponse]


@search_router.post("/search", response_model=SearchResponse, responses=error_responses(413))
async def search(asked: SearchFor, place: ScopeDep, service: ServiceDep, settings: SettingsDep) -> JSONResponse:
    """Find the memories and turns that fit a question, best first, with scores from 0 to 1."""
    query = validate_text(asked.query, name="query")
    times = parse_time_filter(query, at=parse_time(asked.at, name="at") or now(), mode=settings.time_words)
    result = await service.search(
        place,
        SearchRequest(
            query=query,
            limit=settings.search_limit if asked.limit is None else asked.limit,
            filter=both(parse_filter(asked.filters), times.filter),
            min_score=settings.search_min_score if asked.min_score is None else asked.min_score,
            vector=await service.check_embedding(asked.embedding),
            as_of=parse_time(asked.as_of, name="as_of"),
            periods=times.periods,
            explain=asked.explain,
            trace=asked.trace,
        ),
    )
    body: dict[str, Any] = {
        **result.to_dict(),
        "steps_us": {step: round(duration, 1) for step, duration in result.steps_us.items()},
        "notes": list(result.notes),
        "candidates": [each.to_dict() for each in result.candidates],
    }
    return json_response(body)


@search_router.post("/recall", response_model=RecallResponse, responses=error_responses(413))
async def recall(asked: RecallFor, place: ScopeDep, service: ServiceDep, settings: SettingsDep) -> JSONResponse:
    """Find what helps to answer the last message, as a block for the prompt and in the messages.

    If memory is away the outcome says so, and the messages stay as they were given.
    """
    result = await service.recall(
        place,
        RecallRequest(
            messages=parse_messages(dump_messages(asked.messages)),
            at=parse_time(asked.at, name="at") or now(),
            limit=settings.search_limit if asked.limit is None else asked.limit,
            min_score=settings.search_min_score if asked.min_score is None else asked.min_score,
            filter=parse_filter(asked.filters),
            as_of=parse_time(asked.as_of, name="as_of"),
            is_fact=asked.is_fact,
            requires_tool=asked.requires_tool,
            trace=asked.trace,
        ),
    )
    return json_response(result.to_dict())
