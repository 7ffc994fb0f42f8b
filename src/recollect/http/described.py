"""The OpenAPI of the whole server: what the routes tell of themselves, made complete and true."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from recollect.http.auth.rules import Rules
from recollect.http.doors.all import DOORS
from recollect.http.doors.mem0_filter_schema import filter_schemas
from recollect.http.doors.own.answers import Error
from recollect.http.doors.own.filter_schema import MARK, NAME, filter_schema
from recollect.http.doors.own.routing import DELETING
from recollect.http.doors.parameters import NAMES, WHERE
from recollect.http.doors.refusals import error_shapes
from recollect.http.examples import give_examples
from recollect.http.proxy.described import proxy_paths, proxy_shapes
from recollect.http.responses.described import responses_paths
from recollect.http.security import secure
from recollect.http.tags import TAGS

_UNUSED = ("HTTPValidationError", "ValidationError")
_SERVERS = [{"url": "/", "description": "This server."}]


def describe(app: FastAPI, rules: Rules) -> None:
    """Have the app describe itself so."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _described(app, rules)
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]


def _described(app: FastAPI, rules: Rules) -> dict[str, Any]:
    schema: dict[str, Any] = get_openapi(
        title=app.title,
        version=app.version,
        description=app.description,
        routes=app.routes,
        tags=TAGS,
        servers=_SERVERS,
    )
    for methods in schema["paths"].values():
        for method, operation in methods.items():
            # What cannot be used is answered with 400 here.
            operation["responses"].pop("422", None)
            for parameter in operation.get("parameters", ()):
                _complete(parameter)
                if method == "delete" or operation["operationId"] in DELETING:
                    _filled(parameter)
    shapes = schema["components"]["schemas"]
    for name in _UNUSED:
        shapes.pop(name, None)
    shapes |= {NAME: filter_schema(), **filter_schemas(), **proxy_shapes()}
    shapes |= error_shapes([Error, *dict.fromkeys(door.refused for door in DOORS)])
    schema = _pointed(schema)
    shapes = schema["components"]["schemas"]
    for shape in shapes.values():
        if "example" in shape:
            shape["example"] = _whole(shape["example"], shape, shapes)
        if "examples" in shape:
            shape["examples"] = [_whole(each, shape, shapes) for each in shape["examples"]]
    schema["paths"] |= responses_paths() | proxy_paths()
    give_examples(schema)
    secure(schema, rules)
    return schema


def _complete(parameter: dict[str, Any]) -> None:
    """Say of a parameter what the framework has no words for: that it is JSON, and what it is where it is given."""
    shape = _present(parameter.pop("schema"))
    if "contentSchema" in shape:
        parameter["content"] = {shape["contentMediaType"]: {"schema": shape["contentSchema"]}}
    else:
        parameter["schema"] = shape


def _filled(parameter: dict[str, Any]) -> None:
    """Say of a parameter by which something is deleted that it may not be empty."""
    if parameter["name"].casefold() in {name.casefold() for name in (*NAMES, *WHERE)}:
        parameter["schema"]["minLength"] = 1


def _present(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of a parameter where it is given: one that is left out is no null."""
    kinds = [kind for kind in schema.get("anyOf", ()) if kind != {"type": "null"}]
    if len(kinds) != 1:
        return schema
    return {**{name: each for name, each in schema.items() if name != "anyOf"}, **kinds[0]}


def _whole(example: Any, shape: dict[str, Any], shapes: dict[str, Any]) -> Any:
    """An example with the nulls that it must have and that the framework leaves out."""
    shape = shapes.get(shape.get("$ref", "").rpartition("/")[2], shape)
    if isinstance(example, list):
        return [_whole(each, shape.get("items", {}), shapes) for each in example]
    if not isinstance(example, dict) or "properties" not in shape:
        return example
    inner = {name: _whole(each, shape["properties"].get(name, {}), shapes) for name, each in example.items()}
    return {**inner, **{name: None for name in shape.get("required", ()) if name not in example}}


def _pointed(part: Any) -> Any:
    """The same with a pointer wherever the schema of a filter stands."""
    if isinstance(part, dict):
        if part.get(MARK):
            told = {name: part[name] for name in ("description",) if name in part}
            return {"$ref": f"#/components/schemas/{part[MARK]}", **told}
        return {name: _pointed(each) for name, each in part.items()}
    return [_pointed(each) for each in part] if isinstance(part, list) else part
