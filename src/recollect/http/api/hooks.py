"""The route for hooks of coding agents: recall before a prompt, brief a session, keep the exchange."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from fastapi import Body, Depends, Header, Path, Request
from fastapi.responses import JSONResponse

from recollect.coding.events import MAX_TURN_CHARS, answer_of, folder_of, format_answer, prompt_of, session_of
from recollect.coding.transcripts import turn_key
from recollect.config.settings import Settings
from recollect.errors import MissingUser, NotFound, RecollectError, Unavailable
from recollect.http.api.schemas import json_response
from recollect.http.auth import caller as auth
from recollect.http.auth.address import is_loopback
from recollect.http.auth.caller import record_access
from recollect.http.params import NO_CONTROL, DecodedHeader
from recollect.http.proxy.memory_options import InvalidField
from recollect.http.proxy.resilience import Degraded, ResilientMemory
from recollect.http.routing import ProjectHeader, SettingsDep, UserHeader, create_api_router
from recollect.model.change import Author
from recollect.model.ids import stable_id
from recollect.model.memory import Category, MemoryRecord
from recollect.model.messages import strip_injected
from recollect.model.query import Listing, Not, Op, Where, without_turns_of
from recollect.model.result import Hit, RecallOutcome
from recollect.model.scope import Scope
from recollect.model.text import MAX_ID_CHARS, head_and_tail, validate_id
from recollect.model.times import now
from recollect.model.turn import Role
from recollect.project import Project, find_project
from recollect.recall import RecallRequest
from recollect.service.service import Service

_log = logging.getLogger("recollect")
hooks_router = create_api_router("coding agents")

_BRIEFED = Listing(
    filter=Not(Where("category", Op.IN, (str(Category.TURN), str(Category.FILE)))), visible=True, limit=60
)
_MAX_BRIEF_TOKENS = 800
# At these starts of a session its earlier context is still there.
_CONTINUED = ("resume", "fork")

HookClient = Annotated[Literal["claude-code", "codex", "gemini", "cursor"], Path(description="The coding agent.")]
HookEvent = Annotated[
    Literal["recall", "brief", "keep", "save"],
    Path(description="Before a prompt, at the start of a session, after the answer, or before compaction."),
]
_BranchHeader = Annotated[
    str,
    Header(
        alias="X-Memory-Branch", max_length=MAX_ID_CHARS, pattern=NO_CONTROL, description="The checked out branch."
    ),
    DecodedHeader,
]
_EXAMPLE = {"session_id": "5b1c", "cwd": "/home/alex/shop", "prompt": "How do we deploy?"}
_Payload = Annotated[dict[str, Any], Body(description="The event as the client describes it.", examples=[_EXAMPLE])]


@dataclass(frozen=True, slots=True)
class _HookRequest:
    """An event of a client in a session of a project."""

    client: str
    event: str
    payload: dict[str, Any]
    scope: Scope
    branch: str
    author: Author


async def _get_hook_request(
    request: Request,
    client: HookClient,
    event: HookEvent,
    payload: _Payload,
    caller: auth.CallerDep,
    settings: SettingsDep,
    x_memory_user: UserHeader = None,
    x_memory_project: ProjectHeader = None,
    x_memory_branch: _BranchHeader = "",
) -> _HookRequest:
    user = caller.resolve_user(x_memory_user) or (settings.chat_user if caller.kind == "local" else "")
    if not user.strip():
        raise MissingUser("Name the user in X-Memory-User: the credentials are not limited to one")
    await record_access(request.scope, caller, user)
    project = await _find_project(request, payload, x_memory_project, x_memory_branch)
    session = validate_id(session_of(payload), name="the session's id")
    scope = caller.scope(user, project.id, session)
    return _HookRequest(client, event, payload, scope, project.branch, caller.author(f"hook of {client}"))


async def _find_project(request: Request, payload: dict[str, Any], project: str | None, branch: str) -> Project:
    """Return the project that the header names, or else that of the client's folder if it is on this machine."""
    if project:
        return Project(project, branch)
    folder = folder_of(payload)
    if request.client is not None and is_loopback(request.client.host) and folder:
        # In a thread: the folder may be on a slow disk of the network.
        return await asyncio.to_thread(find_project, folder, {})
    if project is None:
        raise InvalidField("X-Memory-Project", "is missing; from another machine, name the project, or send it empty")
    return Project("")


@hooks_router.post("/hooks/{client}/{event}", response_model=dict[str, Any])
async def run_hook(
    request: Request, hook: Annotated[_HookRequest, Depends(_get_hook_request)], settings: SettingsDep
) -> JSONResponse:
    """Answer a hook of a coding agent: with memories for its context, or with nothing once its turns are stored.

    The body is the event as the client writes it, the answer what the client reads. Without X-Memory-Project, the
    project is that of the event's working directory, if the client runs on the same machine. If memory is
    unavailable, the answer has no context.
    """
    memory: ResilientMemory = request.app.state.resilient_memory
    context = ""
    if hook.event == "recall":
        context = await _recall(memory, hook, settings)
        # Stored after the recall, which would find it, and while the client continues.
        memory.tasks.start(_store(memory, hook, {Role.USER: prompt_of(hook.payload)}))
    elif hook.event == "brief":
        context = await _brief(memory, hook, settings)
    else:
        # The prompt as well, for clients that send both: a turn that exists already is not stored twice.
        await _store(memory, hook, {Role.USER: prompt_of(hook.payload), Role.ASSISTANT: answer_of(hook.payload)})
        if hook.event == "save":
            memory.tasks.start(_end_session(memory, hook.scope))
    return json_response(format_answer(hook.client, hook.event, context))


async def _recall(memory: ResilientMemory, hook: _HookRequest, settings: Settings) -> str:
    prompt = prompt_of(hook.payload)
    if not prompt:
        return ""
    # What was said in this session is in the client's context.
    request = RecallRequest(
        messages=[{"role": "user", "content": prompt}],
        at=now(),
        limit=settings.search_limit,
        min_score=settings.search_min_score,
        filter=without_turns_of(hook.scope.session),
    )

    async def recall(service: Service) -> str:
        result = await service.recall(hook.scope, request)
        if result.failure is not None and result.outcome is RecallOutcome.UNAVAILABLE:
            raise result.failure
        return result.context.text

    text = await memory.read(recall)
    return "" if isinstance(text, Degraded) else text


async def _brief(memory: ResilientMemory, hook: _HookRequest, settings: Settings) -> str:
    """Return the most important of the newest memories of the project and the user."""
    if hook.payload.get("source") in _CONTINUED:
        return ""

    async def brief(service: Service) -> str:
        newest = _without_quotations(list(await service.find(hook.scope, _BRIEFED)))
        ranked = sorted(newest, key=lambda record: record.importance, reverse=True)
        hits = [Hit(_with_branch(record, hook.branch), record.importance) for record in ranked]
        budget = min(settings.context_tokens, _MAX_BRIEF_TOKENS)
        return service.format_context(settings.context_format, hits, budget_tokens=budget).text

    text = await memory.read(brief)
    return "" if isinstance(text, Degraded) else text


def _with_branch(record: MemoryRecord, current: str) -> MemoryRecord:
    """Return the record, with its branch in the text if that is not the one that is checked out."""
    branch = record.metadata.get("branch")
    if not isinstance(branch, str) or branch in ("", current):
        return record
    return replace(record, content=f"{record.content} [branch {branch}]")


def _without_quotations(records: Sequence[MemoryRecord]) -> list[MemoryRecord]:
    """Return the records without episodes that only quote another one, as those of short sessions do."""
    words = {record.id: " ".join(record.content.casefold().split()) for record in records}
    texts = [words[record.id] for record in records if record.category is not Category.EPISODE]

    def is_quotation(record: MemoryRecord) -> bool:
        episode = words[record.id]
        return any(text in episode and len(text) * 2 > len(episode) for text in texts)

    return [record for record in records if record.category is not Category.EPISODE or not is_quotation(record)]


async def _store(memory: ResilientMemory, hook: _HookRequest, texts: dict[Role, str]) -> None:
    """Store the turns of an exchange once, however often they are sent, without what recall injected."""
    clean = {role: strip_injected(text).strip() for role, text in texts.items()}
    messages = [
        {
            "role": role,
            "content": head_and_tail(text, MAX_TURN_CHARS),
            # The same id as that of an import of the client's transcripts.
            "turn_id": stable_id(hook.client, "", hook.scope.session, turn_key(role, text)),
            "metadata": {"branch": hook.branch} if hook.branch else {},
            # That of an exchange that was kept while the server was down, and of some clients.
            "timestamp": hook.payload.get("timestamp"),
        }
        for role, text in clean.items()
        if text
    ]
    if messages:
        result = await memory.write(hook.scope, messages, by=hook.author, mode="task")
        if not result.is_durable and result.reason != "quota":
            # The client keeps the exchange and sends it later.
            raise Unavailable(f"The exchange was not stored ({result.reason}); send it again later")


async def _end_session(memory: ResilientMemory, scope: Scope) -> None:
    """Learn from the session so far; the next turn continues it."""

    async def end(service: Service) -> None:
        await service.sessions.end(scope)

    try:
        await memory.read(end)
    except NotFound:
        # Nothing was said in it.
        pass
    except RecollectError as error:
        _log.warning("a session was not saved before its compaction: %s", error)
