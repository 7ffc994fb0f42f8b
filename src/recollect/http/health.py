"""Health: a monitor that checks every few seconds which parts have a problem, and the routes that report it."""

from __future__ import annotations

import asyncio
import itertools
import logging
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field

from recollect import __version__
from recollect.aio.background import BackgroundTask, TaskSet
from recollect.config.settings import Settings
from recollect.errors import RecollectError
from recollect.http.errors import Error, error_responses
from recollect.http.proxy.resilience import ResilientMemory
from recollect.http.upstream.learning import UpstreamModels, describe_start
from recollect.model.job import JobStats
from recollect.model.times import now
from recollect.models.embedding import EmbeddingModel
from recollect.observability.metrics import DEGRADED, JOB_FAILURES, JOBS, JOBS_OLDEST_SECONDS
from recollect.observability.prometheus import CONTENT_TYPE, collect_metrics, render_metrics
from recollect.service.service import ModelState, Service

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

_log = logging.getLogger("recollect")
CHECK_INTERVAL_S = 10.0
# `/ready` does not wait for a store that hangs.
CHECK_TIMEOUT_S = 2.0
# A ledger that answers late is slow, as on a loaded machine; one that is silent for so long is unavailable.
MAX_SILENCE_S = 30.0
_MAX_QUERIES = 4


@dataclass(frozen=True, slots=True)
class HealthProblem:
    """The problem of a part, and when it was first noticed."""

    message: str
    since: datetime


class HealthMonitor:
    """Collects the problems of all parts."""

    def __init__(self, service: Callable[[], Service], resilient_memory: ResilientMemory) -> None:
        self._service = service
        self._resilient_memory = resilient_memory
        self._problems: dict[str, HealthProblem] = {}
        self._check_numbers = itertools.count(1)
        self._last_check = 0
        self._task = BackgroundTask(self._check_periodically)
        self._queries = TaskSet()
        # By the clock of the event loop: when the ledger last answered, or was first queried.
        self._answered_at: float | None = None
        # The new embedding model and its progress, while the model changes.
        self.pending_model: ModelState | None = None

    @property
    def problems(self) -> Mapping[str, HealthProblem]:
        return dict(self._problems)

    @property
    def reason(self) -> str:
        """Return the reason that chat responses carry although the chat succeeded; empty without a problem."""
        return "store_unavailable" if "ledger" in self._problems else "backlog" if "jobs" in self._problems else ""

    def report(self, component: str, problem: str) -> None:
        """Set the problem of a part; an empty one clears it."""
        previous = self._problems.get(component)
        DEGRADED.set(bool(problem), component)
        if problem:
            self._problems[component] = HealthProblem(problem, previous.since if previous else now())
            if previous is None:
                _log.warning("%s: %s", component, problem)
        elif previous is not None:
            del self._problems[component]
            _log.info("%s recovered", component)

    async def check(self) -> None:
        check_number = next(self._check_numbers)
        self._resilient_memory.update_metrics()
        self.report("spilled", "turns wait for the ledger" if self._resilient_memory.has_spilled_turns else "")
        try:
            service = self._service()
            self.report("redis", service.cache_trouble)
            self.report("index", service.index_trouble)
            self.report("llm", service.llm_trouble)
        except RecollectError as error:
            self._report_ledger(check_number, str(error))
            return
        clock = asyncio.get_running_loop().time
        self._answered_at = self._answered_at or clock()
        if len(self._queries) < _MAX_QUERIES:
            query = self._queries.start(self._query_ledger(service, check_number))
            await asyncio.wait([query], timeout=CHECK_TIMEOUT_S)
            if query.done():
                query.result()
                return
        if (silence_s := clock() - self._answered_at) >= MAX_SILENCE_S:
            self._report_ledger(check_number, f"no answer for {silence_s:.0f} s")

    async def _query_ledger(self, service: Service, check_number: int) -> None:
        try:
            stats = await service.jobs.stats()
            self.pending_model = next((state for state in await service.model_states() if state.is_pending), None)
        except RecollectError as error:
            self._report_ledger(check_number, str(error))
        else:
            self._answered_at = asyncio.get_running_loop().time()
            self._report_ledger(check_number, "", stats)

    def _report_ledger(self, check_number: int, problem: str, stats: JobStats | None = None) -> None:
        # `/ready` checks concurrently with the periodic check: the check that began later counts.
        if check_number < self._last_check:
            return
        self._last_check = check_number
        self.report("ledger", problem)
        if stats is not None:
            self.report("jobs", stats.trouble)
            for state in ("waiting", "due", "running", "dead"):
                JOBS.set(getattr(stats, state), state)
            JOBS_OLDEST_SECONDS.set(stats.oldest_due_age_s)
            JOB_FAILURES.set(stats.failures_in_a_row)

    def start(self) -> None:
        self._task.start()

    async def close(self) -> None:
        await self._task.stop()
        await self._queries.close(grace_s=0)

    async def _check_periodically(self) -> None:
        while True:
            try:
                await self.check()
            except Exception:
                # The monitor must not stop, or it would report good health for ever.
                _log.exception("the health check failed")
            await asyncio.sleep(CHECK_INTERVAL_S)
