"""The tools: recall, show, remember, forget and undo, and optional groups of more.

Their list is sent to a model in every conversation, so it is kept short. No tool takes a user or a project, and none
erases or approves.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import field
from typing import Any, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from recollect.errors import InvalidInput, InvalidSettings, NotFound, RecollectError
from recollect.frozen_dataclass import frozen_dataclass
from recollect.mcp import texts
from recollect.mcp.access import McpAccess
from recollect.model.arguments import parse_time
from recollect.model.change import ChangeKind
from recollect.model.memory import Status
from recollect.model.query import Listing
from recollect.model.scope import Level
from recollect.service.tool_memory import REVIEW_NOTICE, Kind, sanitize_line

_MAX_RECALLED = 50
_MAX_SHOWN = 20
_MAX_LISTED = 100
# The number of the user's last sessions among which those of the project are looked for.
_SESSION_WINDOW = 1000


@frozen_dataclass
class ToolResult:
    """What a tool answers: a text for a model, and the same as values for a program."""

    text: str
    values: Mapping[str, Any]


class _Arguments(BaseModel):
    model_config = ConfigDict(extra="forbid")


class RecallArguments(_Arguments):
    """What to look for."""

    query: str
    limit: int = Field(8, ge=1, le=_MAX_RECALLED)
    as_of: str = Field("", description="ISO date: what was true then")


class ShowArguments(_Arguments):
    """Which memories to show."""

    ids: list[str] = Field(min_length=1, max_length=_MAX_SHOWN)


class RememberArguments(_Arguments):
    """What to store."""

    text: str = Field(description="One statement, clear on its own")
    kind: Kind = "fact"
    key: str = Field("", description="Topic; replaces its old value")


class ForgetArguments(_Arguments):
    """Which memory to forget."""

    id: str
    why: str = ""


class NoArguments(_Arguments):
    """Nothing."""


class ListArguments(_Arguments):
    """How many."""

    limit: int = Field(20, ge=1, le=_MAX_LISTED)


class SearchArguments(_Arguments):
    """What to look for."""

    query: str


class FetchArguments(_Arguments):
    """Which memory."""

    id: str


Call: TypeAlias = Callable[[McpAccess, Any], Awaitable[ToolResult]]


@frozen_dataclass(kw_only=True)
class McpTool:
    """A tool. The `hints` of one that writes differ from what a client assumes: destructive and not idempotent."""

    name: str
    description: str
    arguments: type[_Arguments]
    result: Mapping[str, Any]
    call: Call
    writes: bool = False
    hints: Mapping[str, bool] = field(default_factory=dict)

    @property
    def input_schema(self) -> dict[str, Any]:
        """The schema of the arguments without what a model does not need."""
        schema = self.arguments.model_json_schema()
        properties = {name: _without_noise(each) for name, each in schema.get("properties", {}).items()}
        required = {"required": schema["required"]} if "required" in schema else {}
        return {"type": "object", "properties": properties, **required, "additionalProperties": False}

    @property
    def output_schema(self) -> dict[str, Any]:
        """The schema of the result's values."""
        return {"type": "object", "properties": dict(self.result), "required": sorted(self.result)}

    @property
    def annotations(self) -> dict[str, bool]:
        """The hints of the protocol."""
        return {**(self.hints if self.writes else {"readOnlyHint": True}), "openWorldHint": False}

    async def run(self, access: McpAccess, arguments: Mapping[str, Any]) -> ToolResult:
        """Validate the arguments and call; a RecollectError has a message for the model."""
        if self.writes:
            access.check_can_write()
        try:
            values = self.arguments.model_validate(dict(arguments))
        except ValidationError as error:
            raise InvalidInput(_describe(error, self.arguments)) from None
        return await self.call(access, values)


def _without_noise(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in schema.items() if name != "title" and (name, value) != ("default", "")}


def _describe(error: ValidationError, model: type[_Arguments]) -> str:
    problem = error.errors()[0]
    name = str(problem["loc"][0]) if problem["loc"] else "arguments"
    if problem["type"] == "extra_forbidden":
        allowed = ", ".join(model.model_fields) or "none"
        return f"`{sanitize_line(name)[:40]}` is not an argument of this tool; its arguments: {allowed}"
    if problem["type"] == "missing":
        return f"`{name}` is missing"
    value = repr(problem["input"])
    rule = problem["msg"].replace("Input should", "must").replace("List should", "must")
    return f"`{name}` {rule}, got {value if len(value) <= 80 else value[:80] + '…'}"


async def _recall(access: McpAccess, arguments: RecallArguments) -> ToolResult:
    as_of = parse_time(arguments.as_of or None, name="as_of")
    hits = await access.memory.search(arguments.query, arguments.limit, as_of=as_of)
    memories = [texts.memory_values(hit.record) for hit in hits]
    lines = [texts.memory_line(hit.record, each["text"]) for hit, each in zip(hits, memories, strict=True)]
    text = "\n".join([texts.DATA_NOTICE, *lines]) if lines else "Nothing is known about this."
    return ToolResult(text, {"memories": memories})


async def _show(access: McpAccess, arguments: ShowArguments) -> ToolResult:
    found, missing = [], []
    for id in dict.fromkeys(arguments.ids):
        try:
            found.append(await texts.memory_details(access, await access.memory.read(id)))
        except NotFound:
            missing.append(sanitize_line(id)[:80])
    if not found:
        raise NotFound(f"no such memory: {', '.join(missing)}; recall returns ids")
    parts = [texts.DATA_NOTICE, *map(texts.details_text, found), *(f"[{id}] no such memory" for id in missing)]
    return ToolResult("\n\n".join(parts), {"memories": found})


async def _remember(access: McpAccess, arguments: RememberArguments) -> ToolResult:
    fields: dict[str, Any] = {"category": arguments.kind}
    if arguments.key:
        fields |= {"key": arguments.key, "value": arguments.text}
    outcome = await access.memory.store(arguments.text, fields)
    if outcome is None:
        return ToolResult(f"{REVIEW_NOTICE} They see it in `recollect review` or on the web page.", {"id": ""})
    secrets = f", without its secrets ({', '.join(outcome.redacted)})" if outcome.redacted else ""
    if not outcome.changed:
        return ToolResult(f"Known already, as {outcome.id}.", {"id": outcome.id})
    replaced = " It replaces what was stored before." if outcome.verb is not ChangeKind.ADD else ""
    project = sanitize_line(outcome.record.scope.project)
    where = f"project {project}" if outcome.record.level is not Level.USER else "all projects"
    text = f"Stored for {where} as {outcome.id}{secrets}.{replaced} undo takes it back."
    return ToolResult(text, {"id": outcome.id})


async def _forget(access: McpAccess, arguments: ForgetArguments) -> ToolResult:
    try:
        record = await access.memory.get(arguments.id)
        if record.status is Status.FORGOTTEN:
            return ToolResult("It is forgotten already.", {"id": record.id})
        outcome = await access.memory.forget(arguments.id, why=arguments.why)
    except NotFound:
        raise NotFound(f"no such memory: {sanitize_line(arguments.id)[:80]}; recall returns ids") from None
    return ToolResult(f"Forgotten: {texts.memory_line(outcome.record)[2:]}. undo restores it.", {"id": outcome.id})


async def _undo(access: McpAccess, arguments: NoArguments) -> ToolResult:
    try:
        outcomes = await access.memory.undo()
    except NotFound:
        raise NotFound("there is nothing to undo: nothing was remembered or forgotten here") from None
    lines = [texts.outcome_line(outcome.record) for outcome in outcomes]
    return ToolResult("Undone.\n" + "\n".join(lines), {"ids": [outcome.id for outcome in outcomes]})


async def _history(access: McpAccess, arguments: ListArguments) -> ToolResult:
    changes = await texts.recent_changes(access, arguments.limit)
    lines = [f"- {e['at']} {e['change']} by {e['by']}: [{e['id']}] {e['text']}".rstrip() for e in changes]
    return ToolResult("\n".join([texts.DATA_NOTICE, *lines]) if lines else "No changes yet.", {"changes": changes})


async def _sessions(access: McpAccess, arguments: ListArguments) -> ToolResult:
    scope = access.memory.scope
    sessions = await access.memory.service.sessions.list(scope.user, limit=_SESSION_WINDOW)
    own = [each for each in sessions if each.scope.project == scope.project][: arguments.limit]
    values = [
        {
            "id": sanitize_line(each.scope.session),
            "turns": each.turn_count,
            "summary": sanitize_line(each.summary or ""),
        }
        for each in own
    ]
    lines = [f"- {each['id']}: {each['turns']} turns. {each['summary']}".rstrip() for each in values]
    return ToolResult("\n".join([texts.DATA_NOTICE, *lines]) if lines else "No sessions yet.", {"sessions": values})


async def _stats(access: McpAccess, arguments: NoArguments) -> ToolResult:
    facets = await access.memory.service.facets(access.memory.scope, Listing(visible=True))
    kinds = dict(sorted(facets.counts["category"]))
    text = ", ".join(f"{count} {kind}" for kind, count in kinds.items()) or "nothing is stored yet"
    return ToolResult(f"{facets.total} memories: {text}.", {"total": facets.total, "kinds": kinds})


async def _reviews(access: McpAccess, arguments: ListArguments) -> ToolResult:
    records = await access.memory.find(Listing(statuses=(Status.REVIEW,), order="oldest", limit=arguments.limit))
    head = f"These wait until a person approves them; you cannot. {texts.DATA_NOTICE}"
    text = "\n".join([head, *map(texts.memory_line, records)]) if records else "Nothing waits for review."
    return ToolResult(text, {"memories": [texts.memory_values(record) for record in records]})


async def _search(access: McpAccess, arguments: SearchArguments) -> ToolResult:
    hits = await access.memory.search(arguments.query, 10)
    results = [{"id": hit.id, "title": texts.memory_values(hit.record)["text"], "url": _url(hit.id)} for hit in hits]
    return _as_json({"results": results})


async def _fetch(access: McpAccess, arguments: FetchArguments) -> ToolResult:
    try:
        details = await texts.memory_details(access, await access.memory.read(arguments.id))
    except NotFound:
        raise NotFound(f"no such memory: {sanitize_line(arguments.id)[:80]}; search returns ids") from None
    id, text = details["id"], details["text"]
    metadata = {"kind": details["kind"], "date": details["date"], "from": details["from"]}
    return _as_json(
        {"id": id, "title": sanitize_line(text)[:80], "text": text, "url": _url(id), "metadata": metadata}
    )


def _url(id: str) -> str:
    return f"memory://{id}"


def _as_json(values: dict[str, Any]) -> ToolResult:
    # Connectors of ChatGPT parse the text.
    return ToolResult(json.dumps(values, ensure_ascii=False), values)


_LIST: Mapping[str, Any] = {"type": "array"}
_TEXT: Mapping[str, Any] = {"type": "string"}
BASIC_TOOLS = (
    McpTool(
        name="recall",
        description="Search the user's long-term memory. Call it before you answer about earlier work, decisions or "
        "preferences.",
        arguments=RecallArguments,
        result={"memories": _LIST},
        call=_recall,
    ),
    McpTool(
        name="show",
        description="Memories in full, with source turns and history.",
        arguments=ShowArguments,
        result={"memories": _LIST},
        call=_show,
    ),
    McpTool(
        name="remember",
        description="Store a lasting fact, decision with its reason, or preference. No secrets.",
        arguments=RememberArguments,
        result={"id": _TEXT},
        call=_remember,
        writes=True,
        hints={"destructiveHint": False},
    ),
    McpTool(
        name="forget",
        description="Remove a memory that is wrong or unwanted; undo restores it.",
        arguments=ForgetArguments,
        result={"id": _TEXT},
        call=_forget,
        writes=True,
        hints={"idempotentHint": True},
    ),
    McpTool(
        name="undo",
        description="Undo your last remember or forget.",
        arguments=NoArguments,
        result={"ids": _LIST},
        call=_undo,
        writes=True,
    ),
)
TOOL_GROUPS: Mapping[str, tuple[McpTool, ...]] = {
    "history": (
        McpTool(
            name="history",
            description="Last changes of memories.",
            arguments=ListArguments,
            result={"changes": _LIST},
            call=_history,
        ),
    ),
    "sessions": (
        McpTool(
            name="sessions",
            description="Past sessions with their summaries, latest first.",
            arguments=ListArguments,
            result={"sessions": _LIST},
            call=_sessions,
        ),
    ),
    "stats": (
        McpTool(
            name="stats",
            description="Number of memories by kind.",
            arguments=NoArguments,
            result={"total": {"type": "integer"}, "kinds": {"type": "object"}},
            call=_stats,
        ),
    ),
    "reviews": (
        McpTool(
            name="review_list",
            description="Memories that wait for a person's approval.",
            arguments=ListArguments,
            result={"memories": _LIST},
            call=_reviews,
        ),
    ),
    "chatgpt": (
        McpTool(
            name="search",
            description="Search the user's memories; returns ids and titles.",
            arguments=SearchArguments,
            result={"results": _LIST},
            call=_search,
        ),
        McpTool(
            name="fetch",
            description="One memory in full, by its id from search.",
            arguments=FetchArguments,
            result={"id": _TEXT, "title": _TEXT, "text": _TEXT, "url": _TEXT, "metadata": {"type": "object"}},
            call=_fetch,
        ),
    ),
}


def select_tools(groups: str) -> dict[str, McpTool]:
    """Return the five tools and those of the groups, in a fixed order; InvalidSettings for an unknown group."""
    names = {name.strip() for name in groups.split(",") if name.strip()}
    if unknown := names - TOOL_GROUPS.keys():
        raise InvalidSettings(f"mcp_tools: {min(unknown)!r} is not one of {', '.join(TOOL_GROUPS)}")
    more: Iterable[McpTool] = (tool for group, tools in TOOL_GROUPS.items() if group in names for tool in tools)
    return {tool.name: tool for tool in (*BASIC_TOOLS, *more)}


def describe_failure(error: RecollectError) -> str:
    """Return the message of an error for the model."""
    retry = " Try it once more later." if error.retryable else ""
    return f"Not done: {error}.{retry}"
