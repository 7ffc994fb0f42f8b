"""One tool: a name, what it is for, what it takes, and what it does."""

from __future__ import annotations

import asyncio
import inspect
import json
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic.errors import PydanticUserError

from recollect.errors import InvalidInput, ToolFailed

# What every endpoint takes for the name of a function.
_TOOL_NAME = re.compile("[A-Za-z0-9_-]{1,64}")
NO_PARAMETERS: Mapping[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}


@dataclass(frozen=True, slots=True)
class Tool:
    """Something a model may have done: `run` takes the arguments that `parameters`, a JSON schema, describes.

    What `run` gives is told to the model. What it raises is told to it as well, and ends nothing.
    """

    name: str
    description: str
    parameters: Mapping[str, Any] = field(default_factory=lambda: NO_PARAMETERS)
    run: Callable[[Mapping[str, Any]], Awaitable[str]] = field(kw_only=True)

    def __post_init__(self) -> None:
        if not _TOOL_NAME.fullmatch(self.name):
            raise InvalidInput(f"a tool's name has up to 64 letters, digits, _ and -; {self.name[:80]!r} has others")
        if self.parameters.get("type") != "object":
            raise InvalidInput(f"the parameters of {self.name} are a JSON schema of type object")

    @property
    def openai_schema(self) -> dict[str, Any]:
        """The tool as an OpenAI-compatible endpoint is told of it."""
        function = {"name": self.name, "description": self.description, "parameters": dict(self.parameters)}
        return {"type": "function", "function": function}


def result_text(value: object) -> str:
    """What a tool gave, as text: text as it is, anything else as JSON."""
    if isinstance(value, str):
        return value
    if value is None:
        return "done"
    return json.dumps(value, ensure_ascii=False, default=str)


_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_MAX_ERRORS = 5


def function_tool(function: Callable[..., Any], *, name: str | None = None, description: str | None = None) -> Tool:
    """The function as a tool; one that is not async runs in a thread. `Annotated[str, "..."]` describes a parameter.

    Arguments are checked against the type hints before it is called.
    """
    tool_name = name or str(getattr(function, "__name__", ""))
    about = description or inspect.cleandoc(function.__doc__ or "").partition("\n\n")[0].replace("\n", " ")
    if not about:
        raise InvalidInput(f"the tool {tool_name} has no docstring; a model needs to know what it is for")
    names, arguments_model = _make_arguments_model(function, tool_name)

    async def run(arguments: Mapping[str, Any]) -> str:
        values = _validate(arguments_model, names, arguments)
        if inspect.iscoroutinefunction(function):
            return result_text(await function(**values))
        return result_text(await asyncio.to_thread(function, **values))

    return Tool(tool_name, about, _json_schema(arguments_model), run=run)


def _make_arguments_model(function: Callable[..., Any], tool_name: str) -> tuple[dict[str, str], type[BaseModel]]:
    """The names of the parameters by those of the model's fields, and the model that checks them."""
    try:
        hints = get_type_hints(function, include_extras=True)
    except (NameError, TypeError) as error:
        raise InvalidInput(f"the type hints of {tool_name} cannot be read: {error}") from None
    names: dict[str, str] = {}
    fields: dict[str, Any] = {}
    for number, (name, parameter) in enumerate(inspect.signature(function).parameters.items()):
        if parameter.kind not in _BY_NAME:
            raise InvalidInput(f"the tool {tool_name} takes {name} without a name; a model gives arguments by name")
        # Numbered, for a model has attributes of its own that a parameter may be called like.
        names[f"given_{number}"] = name
        hint, about = _split_annotation(hints.get(name, Any))
        default = ... if parameter.default is inspect.Parameter.empty else parameter.default
        fields[f"given_{number}"] = (hint, Field(default, alias=name, description=about))
    try:
        arguments_model = create_model(tool_name, __config__=ConfigDict(extra="forbid", title=tool_name), **fields)
        arguments_model.model_json_schema()
    except PydanticUserError as error:
        raise InvalidInput(
            f"a parameter of {tool_name} is of a type no JSON schema can tell: {error.message}"
        ) from None
    return names, arguments_model


def _split_annotation(hint: Any) -> tuple[Any, str | None]:
    """The hint, and the words that describe it in an Annotated."""
    if get_origin(hint) is not Annotated:
        return hint, None
    about = [each for each in get_args(hint)[1:] if isinstance(each, str)]
    return hint, " ".join(about) or None


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


# The group of those who name none.
DEFAULT_GROUP = "default"


@dataclass(frozen=True, slots=True)
class Toolbox:
    """Tools by their names. With `groups`, names that may hold a *, a caller has only what their groups list.

    Whoever names no group is in "default". Without `groups` everyone has everything.
    """

    tools: tuple[Tool, ...] = ()
    groups: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        names = [tool.name for tool in self.tools]
        if duplicates := {name for name in names if names.count(name) > 1}:
            raise InvalidInput(f"there are two tools called {min(duplicates)}; give one another name")

    @classmethod
    def of(
        cls, tools: Iterable[Tool | Callable[..., Any]], groups: Mapping[str, Sequence[str]] | None = None
    ) -> Toolbox:
        """A toolbox of tools, and of functions that become tools."""
        return cls(tuple(each if isinstance(each, Tool) else function_tool(each) for each in tools), groups or {})

    def with_tools(self, more: Iterable[Tool]) -> Toolbox:
        """The same with more tools in it, for the same groups."""
        return Toolbox((*self.tools, *more), self.groups)

    def allowed(self, groups: Sequence[str] = ()) -> Mapping[str, Tool]:
        """The tools that these groups have together; an InvalidInput for a group that there is not."""
        if not self.groups:
            return {tool.name: tool for tool in self.tools}
        if unknown := [group for group in groups if group not in self.groups]:
            raise InvalidInput(f"there is no group {unknown[0]!r} of tools; there are {', '.join(self.groups)}")
        patterns = [name for group in groups or (DEFAULT_GROUP,) for name in self.groups.get(group, ())]
        return {
            tool.name: tool for tool in self.tools if any(fnmatchcase(tool.name, pattern) for pattern in patterns)
        }
