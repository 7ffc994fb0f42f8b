"""The OpenAPI of the whole server: what the routes tell of themselves, made complete and true."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from recollect.http.auth.rules import AuthRules
from recollect.http.doors.all import COMPAT_ROUTERS
from recollect.http.doors.mem0_filter_schema import filter_schemas
from recollect.http.doors.own.answers import Error
from recollect.http.doors.own.filter_schema import FILTER_MARKER, FILTER_SCHEMA_NAME, filter_schema
from recollect.http.doors.own.routing import DELETING_ROUTES
from recollect.http.doors.parameters import SCOPE_HEADERS, SCOPE_PARAMS
from recollect.http.doors.refusals import error_schemas
from recollect.http.examples import add_examples
from recollect.http.proxy.described import proxy_paths, proxy_schemas
from recollect.http.responses.described import responses_paths
from recollect.http.security import add_security
from recollect.http.tags import TAGS

_UNUSED_SCHEMAS = ("HTTPValidationError", "ValidationError")
_SERVERS = [{"url": "/", "description": "This server."}]


def install_openapi(app: FastAPI, rules: AuthRules) -> None:
    """Have the app describe itself so."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _build_openapi(app, rules)
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]


def _build_openapi(app: FastAPI, rules: AuthRules) -> dict[str, Any]:
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
                _complete_parameter(parameter)
                if method == "delete" or operation["operationId"] in DELETING_ROUTES:
                    _require_nonempty(parameter)
    schemas = schema["components"]["schemas"]
    for name in _UNUSED_SCHEMAS:
        schemas.pop(name, None)
    schemas |= {FILTER_SCHEMA_NAME: filter_schema(), **filter_schemas(), **proxy_schemas()}
    schemas |= error_schemas([Error, *dict.fromkeys(router.error_model for router in COMPAT_ROUTERS)])
    schema = _replace_filter_markers(schema)
    schemas = schema["components"]["schemas"]
    for component in schemas.values():
        if "example" in component:
            component["example"] = _fill_nulls(component["example"], component, schemas)
        if "examples" in component:
            component["examples"] = [_fill_nulls(each, component, schemas) for each in component["examples"]]
    schema["paths"] |= responses_paths() | proxy_paths()
    add_examples(schema)
    add_security(schema, rules)
    return schema


def _complete_parameter(parameter: dict[str, Any]) -> None:
    """Say of a parameter what the framework has no words for: that it is JSON, and what it is where it is given."""
    schema = _without_null(parameter.pop("schema"))
    if "contentSchema" in schema:
        parameter["content"] = {schema["contentMediaType"]: {"schema": schema["contentSchema"]}}
    else:
        parameter["schema"] = schema


def _require_nonempty(parameter: dict[str, Any]) -> None:
    """Say of a parameter by which something is deleted that it may not be empty."""
    if parameter["name"].casefold() in {name.casefold() for name in (*SCOPE_PARAMS, *SCOPE_HEADERS)}:
        parameter["schema"]["minLength"] = 1


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of a parameter where it is given: one that is left out is no null."""
    kinds = [kind for kind in schema.get("anyOf", ()) if kind != {"type": "null"}]
    if len(kinds) != 1:
        return schema
    return {**{name: each for name, each in schema.items() if name != "anyOf"}, **kinds[0]}


def _fill_nulls(example: Any, schema: dict[str, Any], schemas: dict[str, Any]) -> Any:
    """An example with the nulls that it must have and that the framework leaves out."""
    schema = schemas.get(schema.get("$ref", "").rpartition("/")[2], schema)
    if isinstance(example, list):
        return [_fill_nulls(each, schema.get("items", {}), schemas) for each in example]
    if not isinstance(example, dict) or "properties" not in schema:
        return example
    inner = {name: _fill_nulls(each, schema["properties"].get(name, {}), schemas) for name, each in example.items()}
    return {**inner, **{name: None for name in schema.get("required", ()) if name not in example}}


def _replace_filter_markers(part: Any) -> Any:
    """The same with a pointer wherever the schema of a filter stands."""
    if isinstance(part, dict):
        if part.get(FILTER_MARKER):
            description = {name: part[name] for name in ("description",) if name in part}
            return {"$ref": f"#/components/schemas/{part[FILTER_MARKER]}", **description}
        return {name: _replace_filter_markers(each) for name, each in part.items()}
    return [_replace_filter_markers(each) for each in part] if isinstance(part, list) else part
