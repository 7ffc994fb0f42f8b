"""Search and recall."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from recollect.http.doors.given import Text
from recollect.http.doors.own.answers import answered, failing
from recollect.http.doors.own.asking import Place
from recollect.http.doors.own.filter_schema import Filters
from recollect.http.doors.own.routing import Serving, Set, router
from recollect.http.doors.own.shapes import (
    MEMORY,
    Embedding,
    Even,
    Given,
    Hit,
    Plain,
    Share,
    Time,
    example,
    unsaid,
)
from recollect.http.doors.own.talking import Messages, plain
from recollect.language.when import spoken_of
from recollect.model.asked import read_messages, read_time
from recollect.model.filters import read_filter
from recollect.model.outcome import RecallOutcome
from recollect.model.query import both
from recollect.model.text import checked_text
from recollect.model.times import now
from recollect.recall import Recall, Search

finding = router("search and recall")


class Asked(Given):
    """What both take besides what is asked."""

    filters: Filters = Field(default_factory=dict)
    min_score: Share = unsaid()
    at: Time | None = Field(default=None, description='"Last March" is meant from here; by default from now.')
    as_of: Time | None = Field(default=None, description="Answers from what held at that moment, as it was then.")
    trace: bool = Field(default=False, description="Tells every candidate with all its scores and what became of it.")


class SearchFor(Asked):
    """A question to memory."""

    model_config = ConfigDict(
        json_schema_extra={"example": {"query": "What is the budget for the trip?", "limit": 5, "explain": True}}
    )

    query: Text
    limit: Annotated[int, Field(ge=1, le=1000, description="By default `search_limit`."), Even] = unsaid()
    explain: bool = Field(default=False, description="Gives each hit the reason it was kept, in words.")
    embedding: Embedding = unsaid()


class RecallFor(Asked):
    """What is being said, for memory to help with."""

    model_config = ConfigDict(
        json_schema_extra={"example": {"messages": [{"role": "user", "content": "What is my budget for Hawaii?"}]}}
    )

    messages: Messages
    limit: Annotated[int, Field(ge=0, le=1000, description="By default `search_limit`."), Even] = unsaid()
    is_fact: bool | None = Field(default=None, description="Whether it asks for general knowledge, if you know.")
    requires_tool: bool | None = Field(default=None, description="Whether a tool will answer it, if you know.")


class Candidate(BaseModel):
    """A candidate as a trace shows it."""

    id: str
    memory: str
    score: float
    relevance: float
    fate: str = Field(description="Why it was kept or left out.")
    scores: dict[str, float]
    signals: dict[str, float]


class Found(BaseModel):
    """The memories and turns that fit, best first."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "results": [{**MEMORY, "score": 0.83, "scores": {"relevance": 0.83}, "why": "says budget and trip"}],
                "steps_us": {"embed": 210.0},
                "notes": [],
                "candidates": [],
            }
        }
    )

    results: list[Hit]
    steps_us: dict[str, float] = Field(description="How long each step took, in microseconds.")
    notes: list[str]
    candidates: list[Candidate]


class Context(BaseModel):
    """The block for the prompt, and what became of each memory in it."""

    text: str
    tokens: int
    used: list[str]
    cut: dict[str, str]
    dropped: dict[str, str]
    flagged: dict[str, str]


class Told(BaseModel):
    """What a recall came to: its outcome and why, the hits, the block, and the messages with it in its place."""

    model_config = example(
        outcome="used",
        reason="",
        query="What is my budget for Hawaii?",
        results=[{**MEMORY, "score": 0.83, "scores": {"relevance": 0.83}, "why": ""}],
        context={
            "text": "- The budget for the Hawaii trip is $10,000",
            "tokens": 14,
            "used": [MEMORY["id"]],
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
    results: list[Hit]
    context: Context
    messages: list[Plain]
    steps_us: dict[str, float]
    notes: list[str]
    candidates: list[Candidate]


@finding.post("/search", response_model=Found, responses=failing(413))
async def search(asked: SearchFor, place: Place, service: Serving, settings: Set) -> JSONResponse:
    """Find the memories and turns that fit a question, best first, with scores from 0 to 1."""
    query = checked_text(asked.query, name="query")
    times = spoken_of(query, at=read_time(asked.at, name="at") or now(), mode=settings.time_words)
    found = await service.search(
        place,
        Search(
            query=query,
            limit=settings.search_limit if asked.limit is None else asked.limit,
            filter=both(read_filter(asked.filters), times.filter),
            min_score=settings.search_min_score if asked.min_score is None else asked.min_score,
            vector=await service.care.given_vector(asked.embedding),
            as_of=read_time(asked.as_of, name="as_of"),
            periods=times.periods,
            explain=asked.explain,
            trace=asked.trace,
        ),
    )
    told: dict[str, Any] = {
        **found.to_dict(),
        "steps_us": {step: round(took, 1) for step, took in found.steps_us.items()},
        "notes": list(found.notes),
        "candidates": [each.to_dict() for each in found.candidates],
    }
    return answered(told)


@finding.post("/recall", response_model=Told, responses=failing(413))
async def recall(asked: RecallFor, place: Place, service: Serving, settings: Set) -> JSONResponse:
    """Find what helps to answer the last message, as a block for the prompt and in the messages.

    If memory is away the outcome says so, and the messages stay as they were given.
    """
    recalled = await service.recall(
        place,
        Recall(
            messages=read_messages(plain(asked.messages)),
            at=read_time(asked.at, name="at") or now(),
            limit=settings.search_limit if asked.limit is None else asked.limit,
            min_score=settings.search_min_score if asked.min_score is None else asked.min_score,
            filter=read_filter(asked.filters),
            as_of=read_time(asked.as_of, name="as_of"),
            is_fact=asked.is_fact,
            requires_tool=asked.requires_tool,
            trace=asked.trace,
        ),
    )
    return answered(recalled.to_dict())
