"""The tools: recall, show, remember, forget and undo, and optional groups of more.

Their list is sent to a model in every conversation, so it is kept short. No tool takes a user or a project, and none
erases or approves.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from inspect import signature
from typing import Annotated, Any, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from recollect.errors import InvalidInput, InvalidSettings, NotFound, RecollectError
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


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a tool answers: a text for a model, and the same as values for a program."""

    text: str
    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class McpTool:
    """A tool. The `hints` of one that writes differ from what a client assumes: destructive and not idempotent."""

    name: str
    description: str
    arguments: type[BaseModel]
    result: Mapping[str, Any]
    call: Callable[..., Awaitable[ToolResult]]
    writes: bool
    hints: Mapping[str, bool]

    @property
    def input_schema(self) -> dict[str, Any]:
        """The schema of the arguments without what a model does not need."""
        schema = self.arguments.model_json_schema()
        properties = {
            name: {key: value for key, value in each.items() if key != "title" and (key, value) != ("default", "")}
            for name, each in schema["properties"].items()
        }
        required = {"required": schema["required"]} if "required" in schema else {}
        return {"type": "object", "properties": properties, **required, "additionalProperties": False}

    @property
    def output_schema(self) -> dict[str, Any]:
        return {"type": "object", "properties": dict(self.result), "required": sorted(self.result)}

    @property
    def annotations(self) -> dict[str, bool]:
        return {**(self.hints if self.writes else {"readOnlyHint": True}), "openWorldHint": False}

    async def run(self, access: McpAccess, arguments: Mapping[str, Any]) -> ToolResult:
        """Validate the arguments and call; a RecollectError has a message for the model."""
        if self.writes:
            access.check_can_write()
        try:
            values = self.arguments.model_validate(dict(arguments))
        except ValidationError as error:
            raise InvalidInput(_describe(error, self.arguments)) from None
        return await self.call(access, **dict(values))


def _describe(error: ValidationError, model: type[BaseModel]) -> str:
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


# By group; those without one are always there.
_tools: dict[str, list[McpTool]] = {}
_LIST: Mapping[str, Any] = {"type": "array"}
_TEXT: Mapping[str, Any] = {"type": "string"}
_Limit = Annotated[int, Field(ge=1, le=_MAX_LISTED)]


def _tool(
    group: str = "", *, writes: bool = False, hints: Mapping[str, bool] | None = None, **result: Mapping[str, Any]
) -> Callable[[Callable[..., Awaitable[ToolResult]]], None]:
    """Add a tool: its name, description and arguments are those of the function."""

    def add(call: Callable[..., Awaitable[ToolResult]]) -> None:
        types = get_type_hints(call, include_extras=True)
        fields: dict[str, Any] = {
            name: (types[name], ... if each.default is each.empty else each.default)
            for name, each in signature(call).parameters.items()
            if name != "access"
        }
        tool = McpTool(
            name=call.__name__,
            description=" ".join((call.__doc__ or "").split()),
            arguments=create_model(call.__name__, __config__=ConfigDict(extra="forbid"), **fields),
            result=result,
            call=call,
            writes=writes,
            hints=hints or {},
        )
        _tools.setdefault(group, []).append(tool)

    return add


@_tool(memories=_LIST)
async def recall(
    access: McpAccess,
    query: str,
    limit: Annotated[int, Field(ge=1, le=_MAX_RECALLED)] = 8,
    as_of: Annotated[str, Field(description="ISO date: what was true then")] = "",
) -> ToolResult:
    """Search the user's long-term memory. Call it before you answer about earlier work, decisions or preferences."""
    hits = await access.memory.search(query, limit, as_of=parse_time(as_of or None, name="as_of"))
    memories = [texts.memory_values(hit.record) for hit in hits]
    lines = [texts.memory_line(hit.record, each["text"]) for hit, each in zip(hits, memories, strict=True)]
    text = "\n".join([texts.DATA_NOTICE, *lines]) if lines else "Nothing is known about this."
    return ToolResult(text, {"memories": memories})


@_tool(memories=_LIST)
async def show(
    access: McpAccess, ids: Annotated[list[str], Field(min_length=1, max_length=_MAX_SHOWN)]
) -> ToolResult:
    """Memories in full, with source turns and history."""
    found, missing = [], []
    for id in dict.fromkeys(ids):
        try:
            found.append(await texts.memory_details(access, await access.memory.read(id)))
        except NotFound:
            missing.append(sanitize_line(id)[:80])
    if not found:
        raise NotFound(f"no such memory: {', '.join(missing)}; recall returns ids")
    parts = [texts.DATA_NOTICE, *map(texts.details_text, found), *(f"[{id}] no such memory" for id in missing)]
    return ToolResult("\n\n".join(parts), {"memories": found})


@_tool(writes=True, hints={"destructiveHint": False}, id=_TEXT)
async def remember(
    access: McpAccess,
    text: Annotated[str, Field(description="One statement, clear on its own")],
    kind: Kind = "fact",
    key: Annotated[str, Field(description="Topic; replaces its old value")] = "",
) -> ToolResult:
    """Store a lasting fact, decision with its reason, or preference. No secrets."""
    fields: dict[str, Any] = {"category": kind}
    if key:
        fields |= {"key": key, "value": text}
    outcome = await access.memory.store(text, fields)
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


@_tool(writes=True, hints={"idempotentHint": True}, id=_TEXT)
async def forget(access: McpAccess, id: str, why: str = "") -> ToolResult:
    """Remove a memory that is wrong or unwanted; undo restores it."""
    try:
        record = await access.memory.get(id)
        if record.status is Status.FORGOTTEN:
            return ToolResult("It is forgotten already.", {"id": record.id})
        outcome = await access.memory.forget(id, why=why)
    except NotFound:
        raise NotFound(f"no such memory: {sanitize_line(id)[:80]}; recall returns ids") from None
    return ToolResult(f"Forgotten: {texts.memory_line(outcome.record)[2:]}. undo restores it.", {"id": outcome.id})


@_tool(writes=True, ids=_LIST)
async def undo(access: McpAccess) -> ToolResult:
    """Undo your last remember or forget."""
    try:
        outcomes = await access.memory.undo()
    except NotFound:
        raise NotFound("there is nothing to undo: nothing was remembered or forgotten here") from None
    lines = [texts.outcome_line(outcome.record) for outcome in outcomes]
    return ToolResult("Undone.\n" + "\n".join(lines), {"ids": [outcome.id for outcome in outcomes]})


@_tool("history", changes=_LIST)
async def history(access: McpAccess, limit: _Limit = 20) -> ToolResult:
    """Last changes of memories."""
    changes = await texts.recent_changes(access, limit)
    lines = [f"- {e['at']} {e['change']} by {e['by']}: [{e['id']}] {e['text']}".rstrip() for e in changes]
    return ToolResult("\n".join([texts.DATA_NOTICE, *lines]) if lines else "No changes yet.", {"changes": changes})


@_tool("sessions", sessions=_LIST)
async def sessions(access: McpAccess, limit: _Limit = 20) -> ToolResult:
    """Past sessions with their summaries, latest first."""
    scope = access.memory.scope
    sessions = await access.memory.service.sessions.list(scope.user, limit=_SESSION_WINDOW)
    own = [each for each in sessions if each.scope.project == scope.project][:limit]
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


@_tool("stats", total={"type": "integer"}, kinds={"type": "object"})
async def stats(access: McpAccess) -> ToolResult:
    """Number of memories by kind."""
    facets = await access.memory.service.facets(access.memory.scope, Listing(visible=True))
    kinds = dict(sorted(facets.counts["category"]))
    text = ", ".join(f"{count} {kind}" for kind, count in kinds.items()) or "nothing is stored yet"
    return ToolResult(f"{facets.total} memories: {text}.", {"total": facets.total, "kinds": kinds})


@_tool("reviews", memories=_LIST)
async def review_list(access: McpAccess, limit: _Limit = 20) -> ToolResult:
    """Memories that wait for a person's approval."""
    records = await access.memory.find(Listing(statuses=(Status.REVIEW,), order="oldest", limit=limit))
    head = f"These wait until a person approves them; you cannot. {texts.DATA_NOTICE}"
    text = "\n".join([head, *map(texts.memory_line, records)]) if records else "Nothing waits for review."
    return ToolResult(text, {"memories": [texts.memory_values(record) for record in records]})


@_tool("chatgpt", results=_LIST)
async def search(access: McpAccess, query: str) -> ToolResult:
    """Search the user's memories; returns ids and titles."""
    hits = await access.memory.search(query, 10)
    results = [{"id": hit.id, "title": texts.memory_values(hit.record)["text"], "url": _url(hit.id)} for hit in hits]
    return _as_json({"results": results})


@_tool("chatgpt", id=_TEXT, title=_TEXT, text=_TEXT, url=_TEXT, metadata={"type": "object"})
async def fetch(access: McpAccess, id: str) -> ToolResult:
    """One memory in full, by its id from search."""
    try:
        details = await texts.memory_details(access, await access.memory.read(id))
    except NotFound:
        raise NotFound(f"no such memory: {sanitize_line(id)[:80]}; search returns ids") from None
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


BASIC_TOOLS = tuple(_tools.pop(""))
TOOL_GROUPS: Mapping[str, list[McpTool]] = _tools


def select_tools(groups: str) -> dict[str, McpTool]:
    """Return the five tools and those of the groups, in a fixed order; InvalidSettings for an unknown group."""
    names = {name.strip() for name in groups.split(",") if name.strip()}
    if unknown := names - TOOL_GROUPS.keys():
        raise InvalidSettings(f"mcp_tools: {min(unknown)!r} is not one of {', '.join(TOOL_GROUPS)}")
    more = (tool for group, tools in TOOL_GROUPS.items() if group in names for tool in tools)
    return {tool.name: tool for tool in (*BASIC_TOOLS, *more)}


def describe_failure(error: RecollectError) -> str:
    retry = " Try it once more later." if error.retryable else ""
    return f"Not done: {error}.{retry}"
