"""A Python function as a tool: its type hints say what it takes, its docstring what it is for."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic.errors import PydanticUserError

from recollect.agent.tools.tool import Tool, result_text
from recollect.errors import InvalidInput, ToolFailed

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
        # NumberedRecord, for a model has attributes of its own that a parameter may be called like.
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
