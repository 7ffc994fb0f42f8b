"""Routes that look for memories: search, recall, the last recalls, and the graph around a name."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import Path, Query
from fastapi.responses import JSONResponse
from pydantic import Field

from recollect.errors import InvalidInput, NotFound
from recollect.http.api.schemas import Filter as FilterBody
from recollect.http.api.schemas import JsonObject, Limit, ListOf, MemoryHit, fields_of, json_response, optional_field
from recollect.http.api.sessions import Messages, dump_messages
from recollect.http.auth.caller import Caller, CallerDep
from recollect.http.large_json import SlicedJSONResponse
from recollect.http.params import (
    Count,
    Embedding,
    Id,
    IntegralFloat,
    RequiredName,
    ResponseModel,
    StrictModel,
    Text,
    Time,
    UnitFloat,
    example,
)
from recollect.http.routing import ScopeDep, ServiceDep, SettingsDep, create_api_router
from recollect.model.arguments import parse_messages, parse_time
from recollect.model.graph import DEFAULT_NODES, MAX_DEPTH, MAX_NODES, GraphEdge, GraphRequest, NodeKind
from recollect.model.memory import Status
from recollect.model.query import both, parse_filter
from recollect.model.result import (
    FeatureContribution,
    LogOdds,
    PromptBlock,
    ReadTrace,
    RecallOutcome,
    TracedCandidate,
    TracedPeriod,
)
from recollect.model.scope import Scope
from recollect.model.times import now
from recollect.recall import RecallRequest
from recollect.search import SearchRequest
from recollect.service.service import Service
from recollect.text.time_expressions import parse_time_filter

search_router = create_api_router("search and recall")


class QueryOptions(StrictModel):
    """Options of search and recall."""

    filters: FilterBody = Field(default_factory=lambda: FilterBody({}))
    min_score: UnitFloat = optional_field()
    at: Time | None = Field(default=None, description='The time that "last March" is relative to; by default now.')
    as_of: Time | None = Field(default=None, description="Answer from what was valid at this time.")
    trace: bool = Field(default=False, description="Return every candidate with its scores and why it was dropped.")
    memory_id: Id | None = Field(
        default=None, description="With `trace`: a memory that the candidates contain, found or not, with the reason."
    )


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


@fields_of(FeatureContribution)
class ContributionResponse(ResponseModel):
    """The log-odds that a feature adds: its value times its weight."""


@fields_of(LogOdds)
class LogOddsResponse(ResponseModel):
    """The parts of a relevance before later steps changed it; `base` and `question` are equal for all candidates."""

    contributions: list[ContributionResponse] = Field(description="Of the candidate's features, strongest first.")


@fields_of(TracedCandidate)
class CandidateResponse(ResponseModel):
    """A candidate in a trace."""

    decision: str = Field(description="`selected`, or why it was dropped.")
    selected: bool
    in_prompt: bool | None = Field(description="Null for a search.")
    forced: bool = Field(description="Whether it is here only because `memory_id` names it.")
    ranks: dict[str, int] = Field(
        description="From 1, after the steps fuse, rerank, rank, newest and select, until it was dropped."
    )
    log_odds: LogOddsResponse | None


@fields_of(TracedPeriod)
class PeriodResponse(ResponseModel):
    """A time expression of a question."""


@fields_of(ReadTrace)
class TraceResponse(ResponseModel):
    """How a question was read: whether it was searched for and why, the query, and the limits."""

    rewrite: str = Field(description="as-is, terms, llm or hyde.")
    periods: list[PeriodResponse]
    budget_tokens: int | None = Field(description="The maximum size of the text block; null for a search.")
    pool: int = Field(description="The number of candidates.")


class SearchResponse(ResponseModel):
    """The matching memories and turns, best first."""

    results: list[MemoryHit]
    steps_us: dict[str, float] = Field(description="The duration of each step in microseconds.")
    notes: list[str]
    trace: TraceResponse | None = Field(description="Set if a trace was requested.")
    candidates: list[CandidateResponse]


@fields_of(PromptBlock)
class RecallContext(ResponseModel):
    """The text block for the prompt, and the ids of the memories that it uses, cuts, drops and flags."""


class RecallResponse(ResponseModel):
    """The recalled memories, the text block, and the messages with the block inserted."""

    outcome: RecallOutcome
    reason: str
    query: str = Field(description="The query that was searched for.")
    results: list[MemoryHit]
    context: RecallContext
    messages: list[JsonObject]
    steps_us: dict[str, float]
    notes: list[str]
    trace: TraceResponse | None = Field(description="Set if a trace was requested.")
    candidates: list[CandidateResponse]


@search_router.post("/search", response_model=SearchResponse)
async def search(
    body: SearchBody, caller: CallerDep, scope: ScopeDep, service: ServiceDep, settings: SettingsDep
) -> JSONResponse:
    """Return the memories and turns that match a question, best first, with scores from 0 to 1."""
    traced_id = await _check_traced_id(body, caller, scope, service)
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
            traced_id=traced_id,
        ),
    )
    return SlicedJSONResponse(
        {
            **result.to_dict(),
            "steps_us": {step: round(duration, 1) for step, duration in result.steps_us.items()},
            "notes": list(result.notes),
            "trace": result.trace.to_dict() if result.trace else None,
            "candidates": [each.to_dict() for each in result.candidates],
        }
    )


@search_router.post("/recall", response_model=RecallResponse)
async def recall(
    body: RecallBody, caller: CallerDep, scope: ScopeDep, service: ServiceDep, settings: SettingsDep
) -> JSONResponse:
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
            traced_id=await _check_traced_id(body, caller, scope, service),
        ),
    )
    return SlicedJSONResponse(result.to_dict())


async def _check_traced_id(body: QueryOptions, caller: Caller, scope: Scope, service: Service) -> str:
    """Return the memory that the trace contains; NotFound for one that the caller may not see."""
    if body.memory_id is None:
        return ""
    if not body.trace:
        raise InvalidInput("memory_id is for a trace; set trace to true")
    return caller.ensure_visible(await service.get(Scope(scope.user), body.memory_id)).id


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


@search_router.get("/recalls", response_model=ListOf[RecallSummary])
async def list_recalls(scope: ScopeDep, service: ServiceDep, limit: Limit = 50) -> JSONResponse:
    """List the last recalls of the scope, newest first.

    They are kept in the memory of the server's process (`recall_log`), and removed when anything of the user is
    erased.
    """
    entries = await service.recalls(scope)
    return json_response({"results": [each.summary() for each in entries[:limit]]})


@search_router.get("/recalls/{recall_id}", response_model=LoggedRecallResponse)
async def get_recall(
    recall_id: Annotated[str, Path(description="The id of a recall.")], scope: ScopeDep, service: ServiceDep
) -> JSONResponse:
    """Return one of the last recalls."""
    entry = next((each for each in await service.recalls(scope) if each.id == recall_id), None)
    if entry is None:
        raise NotFound(f"no recall {recall_id}; only the last ones are kept")
    return json_response(entry)


graph_router = create_api_router("graph")


class GraphNodeResponse(ResponseModel):
    """A memory, a name, a key or a session."""

    id: str = Field(description="Unique within the graph.")
    kind: NodeKind
    label: str = Field(description="The name as written, the key, the session's id, or the beginning of the memory.")
    distance: int = Field(ge=0, le=MAX_DEPTH, description="The number of edges from `around`.")
    memory_id: str | None = Field(description="Of a memory.")
    status: Status | None = Field(description="Of a memory.")
    session_id: str | None = Field(description="Of a session.")
    project_id: str | None = Field(description="Of a session, if it is in a project.")


@fields_of(GraphEdge)
class GraphEdgeResponse(ResponseModel):
    """An edge from a memory to another node."""


class GraphResponse(ResponseModel):
    """Nodes, nearest first, and all edges between them."""

    nodes: list[GraphNodeResponse]
    edges: list[GraphEdgeResponse]
    truncated: bool = Field(description="Whether there are more nodes than the limit.")


@graph_router.get("/graph", response_model=GraphResponse)
async def get_graph(
    scope: ScopeDep,
    service: ServiceDep,
    around: Annotated[RequiredName, Query(description="A name, a key, or the id of a memory.", examples=["Berlin"])],
    depth: Annotated[int, Query(ge=1, le=MAX_DEPTH, description="How many edges to follow.")] = 1,
    limit: Annotated[int, Query(ge=1, le=MAX_NODES, description="The maximum number of nodes.")] = DEFAULT_NODES,
    superseded: Annotated[bool, Query(description="Whether to include superseded memories.")] = False,
) -> JSONResponse:
    """Return the memories that mention a name or have a key, and what else they mention.

    Only memories that a search in this scope can find are included; turns are not. Without any, the graph is empty.
    """
    request = GraphRequest(around=around, depth=depth, limit=limit, superseded=superseded)
    return json_response(await service.graph(scope, request))
