"""A Python function as a tool: its type hints say what it takes, its docstring what it is for."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic.errors import PydanticUserError

from recollect.agent.tools.tool import Tool, told
from recollect.errors import InvalidInput, ToolFailed

_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_MOST_COMPLAINTS = 5


def function_tool(function: Callable[..., Any], *, name: str | None = None, description: str | None = None) -> Tool:
    """The function as a tool; one that is not async runs in a thread. `Annotated[str, "..."]` describes a parameter.

    Arguments are checked against the type hints before it is called.
    """
    called = name or str(getattr(function, "__name__", ""))
    about = description or inspect.cleandoc(function.__doc__ or "").partition("\n\n")[0].replace("\n", " ")
    if not about:
        raise InvalidInput(f"the tool {called} has no docstring; a model needs to know what it is for")
    names, takes = _arguments(function, called)

    async def run(arguments: Mapping[str, Any]) -> str:
        given = _checked(takes, names, arguments)
        if inspect.iscoroutinefunction(function):
            return told(await function(**given))
        return told(await asyncio.to_thread(function, **given))

    return Tool(called, about, _schema(takes), run=run)


def _arguments(function: Callable[..., Any], called: str) -> tuple[dict[str, str], type[BaseModel]]:
    """The names of the parameters by those of the model's fields, and the model that checks them."""
    try:
        hints = get_type_hints(function, include_extras=True)
    except (NameError, TypeError) as error:
        raise InvalidInput(f"the type hints of {called} cannot be read: {error}") from None
    names: dict[str, str] = {}
    fields: dict[str, Any] = {}
    for number, (name, parameter) in enumerate(inspect.signature(function).parameters.items()):
        if parameter.kind not in _BY_NAME:
            raise InvalidInput(f"the tool {called} takes {name} without a name; a model gives arguments by name")
        # Numbered, for a model has attributes of its own that a parameter may be called like.
        names[f"given_{number}"] = name
        hint, about = _described(hints.get(name, Any))
        default = ... if parameter.default is inspect.Parameter.empty else parameter.default
        fields[f"given_{number}"] = (hint, Field(default, alias=name, description=about))
    try:
        takes = create_model(called, __config__=ConfigDict(extra="forbid", title=called), **fields)
        takes.model_json_schema()
    except PydanticUserError as error:
        raise InvalidInput(f"a parameter of {called} is of a type no JSON schema can tell: {error.message}") from None
    return names, takes


def _described(hint: Any) -> tuple[Any, str | None]:
    """The hint, and the words that describe it in an Annotated."""
    if get_origin(hint) is not Annotated:
        return hint, None
    about = [each for each in get_args(hint)[1:] if isinstance(each, str)]
    return hint, " ".join(about) or None


def _schema(takes: type[BaseModel]) -> dict[str, Any]:
    schema = takes.model_json_schema()
    schema.pop("title", None)
    for each in schema.get("properties", {}).values():
        each.pop("title", None)
    return {"properties": {}, **schema}


def _checked(takes: type[BaseModel], names: Mapping[str, str], arguments: Mapping[str, Any]) -> dict[str, Any]:
    try:
        checked = takes.model_validate(dict(arguments))
    except ValidationError as error:
        wrong = [f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors()[:_MOST_COMPLAINTS]]
        raise ToolFailed(f"the arguments do not fit: {'; '.join(wrong)}") from None
    return {name: getattr(checked, field) for field, name in names.items()}
