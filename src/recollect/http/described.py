"""The OpenAPI of the whole server: what the routes tell of themselves, made complete and true."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from recollect.http.doors.own.filter_schema import MARK, NAME, filter_schema
from recollect.http.doors.own.routing import PREFIX
from recollect.http.proxy.described import proxy_paths

_UNUSED = ("HTTPValidationError", "ValidationError")


def describe(app: FastAPI) -> None:
    """Have the app describe itself so."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _described(app)
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]


def _described(app: FastAPI) -> dict[str, Any]:
    schema: dict[str, Any] = get_openapi(
        title=app.title, version=app.version, description=app.description, routes=app.routes, tags=app.openapi_tags
    )
    for path, methods in schema["paths"].items():
        if path.startswith(PREFIX):
            for operation in methods.values():
                # What cannot be used is answered with 400 there.
                operation["responses"].pop("422", None)
                for parameter in operation.get("parameters", ()):
                    parameter["schema"] = _present(parameter["schema"])
    components = schema.setdefault("components", {}).setdefault("schemas", {})
    components[NAME] = filter_schema()
    schema = _pointed(schema)
    for shape in schema["components"]["schemas"].values():
        if "example" in shape:
            shape["example"] = _whole(shape["example"], shape, schema["components"]["schemas"])
    schema["paths"] |= proxy_paths()
    text = str(schema["paths"])
    for name in _UNUSED:
        if f"/{name}'" not in text:
            schema["components"]["schemas"].pop(name, None)
    return schema


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
            return {"$ref": f"#/components/schemas/{NAME}", **told}
        return {name: _pointed(each) for name, each in part.items()}
    return [_pointed(each) for each in part] if isinstance(part, list) else part
