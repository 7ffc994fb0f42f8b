"""The groups of routes in OpenAPI, in the order in which the page shows them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from recollect.http.api.responses import Error
from recollect.http.api.routing import DELETING_ROUTES
from recollect.http.api.schemas import FILTER_MARKER, FILTER_SCHEMA_NAME, filter_schema
from recollect.http.auth.middleware import OPEN_PATHS
from recollect.http.auth.rules import AnonymousAccess, AuthRules
from recollect.http.compat.mem0.filters import filter_schemas
from recollect.http.errors import error_schemas
from recollect.http.params import SCOPE_HEADERS, SCOPE_PARAMS
from recollect.http.proxy.openapi import proxy_paths, proxy_schemas
from recollect.http.routes import COMPAT_ROUTERS

_API_TAGS = (
    ("memories", "Memories, one at a time and in lists."),
    ("search and recall", "Finding memories, and having them ready for a prompt."),
    ("turns and sessions", "What was said: remembering it, reading it again, and the sessions it was said in."),
    ("history and undo", "What happened to memories, and taking it back."),
    ("reviews", "Memories that wait for a person's approval."),
    ("jobs", "What is learned behind the answers."),
    ("changes", "What happens to memories, as it happens."),
    ("export and import", "All of a user's memories as JSON lines."),
    ("erasing", "Removing for good, with a receipt."),
    ("usage and upkeep", "How much there is, what it cost, and putting it in order."),
    ("admin", "What concerns everyone; for admin keys."),
)
_COMPAT_TAGS = (
    ("proxy", "Chats as OpenAI's clients have them, with memory."),
    ("responses", "OpenAI's Responses API, with memory."),
    ("conversations", "OpenAI's Conversations API."),
    ("memory", "Memories of a user and their projects: /v1/memory."),
    ("sessions", "What is remembered of a session: /api/sessions."),
    ("react", "Facts, episodes and conversations for a reasoning agent: /api/react."),
    ("agent", "An agent that reasons, acts with tools and remembers: /v1/agent."),
    ("mem0 platform", "For clients of mem0's platform; what they send and we do not know is passed over."),
    ("mem0 server", "For clients of the server that mem0 users run themselves."),
    ("health", "Is it up, is it ready, what is it."),
)
TAGS = [
    *({"name": name, "description": f"Recollect's own API. {description}"} for name, description in _API_TAGS),
    *({"name": name, "description": description} for name, description in _COMPAT_TAGS),
]


_REF_PREFIX = "#/components/schemas/"
_NO_EXAMPLE = object()
# Of what needs no telling; words are not among it.
_DEFAULT_EXAMPLES: Mapping[str, Any] = {"null": None, "boolean": True, "integer": 0, "number": 0.0, "object": {}}


def add_examples(schema: dict[str, Any]) -> None:
    """Give every body and answer in JSON an example, where one can be told; what is there already stays."""
    schemas = schema["components"]["schemas"]
    for methods in schema["paths"].values():
        for operation in methods.values():
            for part in (operation.get("requestBody", {}), *operation["responses"].values()):
                content = part.get("content", {}).get("application/json")
                if content is not None and not content.keys() & {"example", "examples"}:
                    example = example_of(content["schema"], schemas)
                    if example is not _NO_EXAMPLE:
                        content["example"] = example


def example_of(schema: Mapping[str, Any], schemas: Mapping[str, Any]) -> Any:
    """The first example of a shape, or one made of those of its parts."""
    if "example" in schema:
        return schema["example"]
    for example in schema.get("examples", ()):
        return example
    if "$ref" in schema:
        return example_of(schemas[schema["$ref"].removeprefix(_REF_PREFIX)], schemas)
    for word in ("const", "default"):
        if word in schema:
            return schema[word]
    if "enum" in schema:
        return schema["enum"][0]
    for kind in schema.get("anyOf", ()):
        return example_of(kind, schemas)
    if schema.get("type") == "array":
        inside = example_of(schema.get("items", {}), schemas)
        return _NO_EXAMPLE if inside is _NO_EXAMPLE else [inside]
    if "properties" in schema:
        return _example_of_properties(schema, schemas)
    return _DEFAULT_EXAMPLES.get(schema.get("type", ""), _NO_EXAMPLE)


def _example_of_properties(schema: Mapping[str, Any], schemas: Mapping[str, Any]) -> Any:
    values = {name: example_of(part, schemas) for name, part in schema["properties"].items()}
    if any(values[name] is _NO_EXAMPLE for name in schema.get("required", ())):
        return _NO_EXAMPLE
    return {name: each for name, each in values.items() if each is not _NO_EXAMPLE}


_GATEWAY_HEADER = "x-authz-user-id"


def add_security(schema: dict[str, Any], rules: AuthRules) -> None:
    """Tell the ways to say who is asking, and of every path which of them this server accepts."""
    schema["components"]["securitySchemes"] = _security_schemes(rules)
    requirements = _accepted_schemes(rules)
    for path, methods in schema["paths"].items():
        for operation in methods.values():
            operation["security"] = [] if path in OPEN_PATHS else requirements


def _security_schemes(rules: AuthRules) -> dict[str, Any]:
    header = rules.user_header.decode() or _GATEWAY_HEADER
    return {
        "key": {
            "type": "http",
            "scheme": "bearer",
            "bearerFormat": "rk_...",
            "description": "A key of this server; `recollect keys add` makes one. On this machine none is needed as "
            "long as there is none.",
        },
        "key_header": {
            "type": "apiKey",
            "in": "header",
            "name": "X-API-Key",
            "description": "The same where Authorization is for the endpoint behind the proxy.",
        },
        "gateway": {
            "type": "apiKey",
            "in": "header",
            "name": header,
            "description": "Who it is, as a gateway says whose address is in trusted_gateways.",
        },
        "token": {
            "type": "http",
            "scheme": "bearer",
            "bearerFormat": "JWT",
            "description": "A token of the issuer in jwt_issuer, where jwt_jwks_url is set.",
        },
    }


def _accepted_schemes(rules: AuthRules) -> list[dict[str, list[str]]]:
    """One of these is enough; an empty one says that nothing need be shown."""
    accepted = [
        *(("key", "key_header") if rules.keys else ()),
        *(("gateway",) if rules.gateways else ()),
        *(("token",) if rules.tokens is not None else ()),
    ]
    requirements: list[dict[str, list[str]]] = [{name: []} for name in accepted]
    return requirements if rules.anonymous is AnonymousAccess.NEVER else [{}, *requirements]


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
    schema["paths"] |= proxy_paths()
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
