"""Tools, and toolboxes of tools in groups."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import json
import re
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic.errors import PydanticUserError

from recollect.errors import InvalidInput, NotFound, ToolFailed
from recollect.model.memory import Category, MemoryRecord, Status
from recollect.model.query import Filter, Not, Op, Where
from recollect.service.tool_memory import REVIEW_NOTICE, ToolMemory, quoted_line

# The names that all endpoints accept.
_TOOL_NAME = re.compile("[A-Za-z0-9_-]{1,64}")
NO_PARAMETERS: Mapping[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool; `run` takes the arguments that `parameters`, a JSON schema, describes.

    The model is shown what `run` returns or raises.
    """

    name: str
    description: str
    parameters: Mapping[str, Any] = field(default_factory=lambda: NO_PARAMETERS)
    run: Callable[[Mapping[str, Any]], Awaitable[str]] = field(kw_only=True)

    def __post_init__(self) -> None:
        if not _TOOL_NAME.fullmatch(self.name):
            raise InvalidInput(f"a tool's name may have up to 64 letters, digits, _ and -, got {self.name[:80]!r}")
        if self.parameters.get("type") != "object":
            raise InvalidInput(f"`parameters` of {self.name} must be a JSON schema of type object")

    @property
    def openai_schema(self) -> dict[str, Any]:
        """Return the tool in the format of OpenAI-compatible endpoints."""
        function = {"name": self.name, "description": self.description, "parameters": dict(self.parameters)}
        return {"type": "function", "function": function}


def result_text(value: object) -> str:
    """Return the result of a tool as text; JSON if it is no text."""
    if isinstance(value, str):
        return value
    if value is None:
        return "done"
    return json.dumps(value, ensure_ascii=False, default=str)


_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_MAX_ERRORS = 5
# Blocking tools that run at the same time; one that hangs counts until it returns.
_MAX_THREADS = 32
_free_threads = threading.BoundedSemaphore(_MAX_THREADS)


def function_tool(function: Callable[..., Any], *, name: str | None = None, description: str | None = None) -> Tool:
    """Return a function as a tool; one that is not async runs in a thread.

    Arguments are validated against the type hints. `Annotated[str, "..."]` describes a parameter, and an
    `AliasChoices` in it lists further names that it accepts, which the model is not shown.
    """
    tool_name = name or str(getattr(function, "__name__", ""))
    about = description or inspect.cleandoc(function.__doc__ or "").partition("\n\n")[0].replace("\n", " ")
    if not about:
        raise InvalidInput(f"the tool {tool_name} needs a docstring, which the model is shown")
    names, arguments_model = _make_arguments_model(function, tool_name)

    async def run(arguments: Mapping[str, Any]) -> str:
        values = _validate(arguments_model, names, arguments)
        if inspect.iscoroutinefunction(function):
            return result_text(await function(**values))
        return result_text(await _run_in_thread(function, values))

    return Tool(tool_name, about, _json_schema(arguments_model), run=run)


async def _run_in_thread(function: Callable[..., Any], values: Mapping[str, Any]) -> Any:
    """Run a blocking function in a thread of its own, so that one that hangs blocks no other work of the process."""
    if not _free_threads.acquire(blocking=False):
        raise ToolFailed(f"{_MAX_THREADS} calls of tools still run; try it again later")
    loop, context = asyncio.get_running_loop(), contextvars.copy_context()
    result: asyncio.Future[Any] = loop.create_future()

    def deliver(value: object, error: Exception | None) -> None:
        if result.done():
            return
        if error is None:
            result.set_result(value)
        else:
            result.set_exception(error)

    def work() -> None:
        value: object = None
        failure: Exception | None = None
        try:
            value = context.run(function, **values)
        except StopIteration as error:
            # A future cannot raise it.
            failure = ToolFailed(f"StopIteration: {error}")
        except Exception as error:
            failure = error
        finally:
            _free_threads.release()
        with suppress(RuntimeError):
            # The loop may be closed by now.
            loop.call_soon_threadsafe(deliver, value, failure)

    threading.Thread(target=work, name="recollect-tool", daemon=True).start()
    return await result


def _make_arguments_model(function: Callable[..., Any], tool_name: str) -> tuple[dict[str, str], type[BaseModel]]:
    """Return the parameter names by field name, and the pydantic model that validates them."""
    try:
        hints = get_type_hints(function, include_extras=True)
    except (NameError, TypeError) as error:
        raise InvalidInput(f"the type hints of {tool_name} cannot be read: {error}") from None
    names: dict[str, str] = {}
    fields: dict[str, Any] = {}
    for number, (name, parameter) in enumerate(inspect.signature(function).parameters.items()):
        if parameter.kind not in _BY_NAME:
            raise InvalidInput(f"the parameter {name} of the tool {tool_name} must accept a keyword argument")
        # Numbered, since a parameter may have the name of an attribute of the model.
        names[f"argument_{number}"] = name
        hint, about, aliases = _split_annotation(hints.get(name, Any))
        default = ... if parameter.default is inspect.Parameter.empty else parameter.default
        fields[f"argument_{number}"] = (
            hint,
            Field(default, validation_alias=AliasChoices(name, *aliases), description=about),
        )
    try:
        arguments_model = create_model(tool_name, __config__=ConfigDict(extra="forbid", title=tool_name), **fields)
        arguments_model.model_json_schema()
    except PydanticUserError as error:
        raise InvalidInput(f"a parameter of {tool_name} has a type without a JSON schema: {error.message}") from None
    return names, arguments_model


def _split_annotation(hint: Any) -> tuple[Any, str | None, list[str]]:
    """Return the hint, and the description and the further names in an Annotated."""
    if get_origin(hint) is not Annotated:
        return hint, None, []
    about = [each for each in get_args(hint)[1:] if isinstance(each, str)]
    choices = [each.choices for each in get_args(hint)[1:] if isinstance(each, AliasChoices)]
    return hint, " ".join(about) or None, [str(name) for names in choices for name in names]


def _json_schema(arguments_model: type[BaseModel]) -> dict[str, Any]:
    schema = arguments_model.model_json_schema()
    schema.pop("title", None)
    for each in schema.get("properties", {}).values():
        each.pop("title", None)
    return {"properties": {}, **schema}


def _validate(
    arguments_model: type[BaseModel], names: Mapping[str, str], arguments: Mapping[str, Any]
) -> dict[str, Any]:
    try:
        checked = arguments_model.model_validate(dict(arguments))
    except ValidationError as error:
        problems = [f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors()[:_MAX_ERRORS]]
        raise ToolFailed(f"the arguments do not fit: {'; '.join(problems)}") from None
    return {name: getattr(checked, field) for field, name in names.items()}


# The group of callers that name none.
DEFAULT_GROUP = "default"


@dataclass(frozen=True, slots=True)
class Toolbox:
    """Tools by name. With `groups` of name patterns, a caller may use only the tools of their groups.

    A caller that names no group is in "default". Without `groups` everyone may use all tools.
    """

    tools: tuple[Tool, ...] = ()
    groups: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        names = [tool.name for tool in self.tools]
        if duplicates := {name for name in names if names.count(name) > 1}:
            raise InvalidInput(f"two tools are named {min(duplicates)}; rename one")

    @classmethod
    def of(
        cls, tools: Iterable[Tool | Callable[..., Any]], groups: Mapping[str, Sequence[str]] | None = None
    ) -> Toolbox:
        return cls(tuple(each if isinstance(each, Tool) else function_tool(each) for each in tools), groups or {})

    def with_tools(self, more: Iterable[Tool]) -> Toolbox:
        return Toolbox((*self.tools, *more), self.groups)

    def allowed(self, groups: Sequence[str] = ()) -> Mapping[str, Tool]:
        """Return the tools of these groups; raise InvalidInput for an unknown group."""
        if not self.groups:
            return {tool.name: tool for tool in self.tools}
        if unknown := [group for group in groups if group not in self.groups]:
            raise InvalidInput(f"there is no group {unknown[0]!r} of tools; there are {', '.join(self.groups)}")
        patterns = [name for group in groups or (DEFAULT_GROUP,) for name in self.groups.get(group, ())]
        return {
            tool.name: tool for tool in self.tools if any(fnmatchcase(tool.name, pattern) for pattern in patterns)
        }


FACTS: Filter = Not(Where("category", Op.IN, tuple(map(str, (Category.EPISODE, Category.SUMMARY, Category.TURN)))))
EPISODES: Filter = Where("category", Op.EQ, str(Category.EPISODE))
MEMORY_TOOLS = ("RetrieveFacts", "RecallEpisodes", "StoreFact", "CorrectFact", "ForgetFact")
_NON_FACT_CATEGORIES = (Category.EPISODE, Category.SUMMARY, Category.TURN, Category.FILE)
_CONFIDENCE = 0.7

_QUERY = Annotated[str, "What to look for, in words."]
_NUMBER = Annotated[str, "The fact's number, such as f1, from RetrieveFacts."]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryLimits:
    """The limits of one run: results per call, and the number of calls of each kind."""

    facts: int = 5
    episodes: int = 3
    retrievals: int = 20
    stores: int = 10
    corrections: int = 3
    forgets: int = 3
    max_chars: int = 1000


def memory_tools(memory: ToolMemory, limits: MemoryLimits | None = None) -> tuple[Tool, ...]:
    tools = _MemoryToolset(memory, limits or MemoryLimits())
    functions: Sequence[Callable[..., Any]] = (
        tools.retrieve_facts,
        tools.recall_episodes,
        tools.store_fact,
        tools.correct_fact,
        tools.forget_fact,
    )
    return tuple(function_tool(each, name=name) for name, each in zip(MEMORY_TOOLS, functions, strict=True))


@dataclass(slots=True)
class _MemoryToolset:
    memory: ToolMemory
    limits: MemoryLimits
    counts: Counter[str] = field(default_factory=Counter)
    # Short numbers, since models make mistakes in long ids.
    ids_by_number: dict[str, str] = field(default_factory=dict)

    async def retrieve_facts(self, query: _QUERY) -> str:
        """Retrieve more facts from long-term memory."""
        self._count("retrievals")
        hits = await self.memory.search(query, self.limits.facts, among=FACTS, turns=False)
        lines = [f"{self._number(hit.id)}: {quoted_line(hit.record)}" for hit in hits]
        return "\n".join(lines) or "No fact fits."

    async def recall_episodes(self, query: _QUERY) -> str:
        """Search for similar tasks of the past: what was tried, what came of it, what was learned."""
        self._count("retrievals")
        hits = await self.memory.search(query, self.limits.episodes, among=EPISODES, turns=False)
        lines = [f"Episode {at}: {quoted_line(hit.record)}" for at, hit in enumerate(hits, 1)]
        return "\n".join(lines) or "No episode fits."

    async def store_fact(
        self, fact_content: Annotated[str, "The fact, as one sentence that stands alone.", AliasChoices("content")]
    ) -> str:
        """Store a fact for the future: something true that will matter again."""
        self._count("stores")
        outcome = await self.memory.store(self._check_length(fact_content), {"confidence": _CONFIDENCE})
        return f"Stored as {self._number(outcome.id)}." if outcome is not None else REVIEW_NOTICE

    async def correct_fact(
        self, number: _NUMBER, content: Annotated[str, "What is true instead, as one sentence."]
    ) -> str:
        """Correct a fact that turned out to be wrong; the old words stay in its history."""
        self._count("corrections")
        record = await self._get_fact(number)
        content = self._check_length(content)
        outcome = await self.memory.correct(record.id, content, expected_version=record.version)
        return f"Corrected {number}." if outcome is not None else REVIEW_NOTICE

    async def forget_fact(self, number: _NUMBER) -> str:
        """Forget a fact that is wrong or that the user wants forgotten; a person can bring it back."""
        self._count("forgets")
        record = await self._get_fact(number)
        await self.memory.forget(record.id, expected_version=record.version)
        return f"Forgot {number}."

    async def _get_fact(self, number: str) -> MemoryRecord:
        """Return a fact that the scope sees, or raise ToolFailed."""
        if (id := self.ids_by_number.get(number.strip().casefold())) is not None:
            with suppress(NotFound):
                record = await self.memory.get(id)
                if record.status is Status.ACTIVE and record.category not in _NON_FACT_CATEGORIES:
                    return record
        raise ToolFailed(f"there is no fact {number[:20]!r}; RetrieveFacts returns the numbers")

    def _number(self, id: str) -> str:
        label = next((number for number, memory_id in self.ids_by_number.items() if memory_id == id), None)
        if label is None:
            label = f"f{len(self.ids_by_number) + 1}"
            self.ids_by_number[label] = id
        return label

    def _count(self, action: str) -> None:
        max_count = getattr(self.limits, action)
        if self.counts[action] >= max_count:
            raise ToolFailed(f"no more {action} in this run: {max_count} are the limit")
        self.counts[action] += 1

    def _check_length(self, content: str) -> str:
        if len(content) > self.limits.max_chars:
            raise ToolFailed(f"a fact has at most {self.limits.max_chars} characters; say it shorter")
        return content
