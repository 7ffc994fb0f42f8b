"""The routes of this door: what cannot be used is told in one sentence with 400, and no parameter goes unnoticed."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request, Response, params
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute

from recollect.errors import InvalidInput
from recollect.http.doors.own.answers import COMMON_ERRORS
from recollect.http.doors.parameters import (
    SCOPE_PARAMS,
    empty_headers,
    empty_names,
    query_names,
    repeated_names,
    single_names,
    unknown_names,
)
from recollect.http.doors.rights import require_permissions
from recollect.http.late_service import get_service
from recollect.service import Service
from recollect.settings import Settings

API_PREFIX = "/recollect/v1"
_REQUEST_PARTS = {"body": "the body", "query": "the address", "path": "the path", "header": "the headers"}


_READ_ONLY_ROUTES = ("search", "recall", "list_memories_by_filter")
_WRITE_ONLY_ROUTES = ("add_memory", "remember", "import_memories", "get_version")
# What deletes though it is no DELETE, and what says where: left empty by a slip, it would delete too much.
DELETING_ROUTES = ("forget_memories",)
_NOT_AN_OBJECT = ("model_attributes_type", "model_type", "dict_type", "union_tag_not_found")


class ApiRoute(APIRoute):
    """A route that says what is wrong with a request; an unknown parameter is a slip, not a wish to be ignored."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        allowed, single = frozenset(query_names(self.dependant)), frozenset(single_names(self.dependant))
        deletes = self.methods == {"DELETE"} or self.name in DELETING_ROUTES

        async def handler(request: Request) -> Response:
            if unknown := unknown_names(request, allowed):
                raise InvalidInput(_describe_unknown(unknown[0], allowed))
            if repeated := repeated_names(request, single):
                raise InvalidInput(f"{repeated[0]} is given more than once, and one is meant")
            if deletes and (empty := [*empty_names(request, SCOPE_PARAMS), *empty_headers(request)]):
                raise InvalidInput(f"{empty[0]} is empty; name what is meant, or leave it out")
            try:
                return await handle(request)
            except RequestValidationError as error:
                raise InvalidInput(describe_validation_error(error)) from None

        return handler


def _describe_unknown(name: str, allowed: frozenset[str]) -> str:
    hint = f"there are {', '.join(sorted(allowed))}" if allowed else "there are none here"
    return f"there is no parameter {name[:100]!r}; {hint}"


def describe_validation_error(error: RequestValidationError) -> str:
    """The first thing that is wrong, as a sentence; what was sent is not repeated, for it may be private."""
    errors = error.errors()
    if not errors:
        return "the request cannot be used"
    first = errors[0]
    part, *where = (str(each) for each in first["loc"])
    if first["type"] == "json_invalid":
        return f"the body is no JSON: {first.get('ctx', {}).get('error', 'it breaks off')}"
    if part == "body" and not where and first["type"] in _NOT_AN_OBJECT:
        return "the body is a JSON object; send one, with Content-Type: application/json"
    name = ".".join(where) or _REQUEST_PARTS.get(part, part)
    if first["type"] == "extra_forbidden":
        return f"there is no field {name} here"
    if first["type"] == "missing":
        return f"{name} is missing" if where else f"{_REQUEST_PARTS.get(part, part)} is missing"
    message = str(first["msg"])
    return f"{name}: {message[:1].lower()}{message[1:]}"


def create_router(tag: str, *dependencies: params.Depends) -> APIRouter:
    """A part of this door; every route of it can fail in the ways that any can."""
    return APIRouter(
        prefix=API_PREFIX,
        tags=[tag],
        dependencies=[require_permissions(read_only=_READ_ONLY_ROUTES, write_only=_WRITE_ONLY_ROUTES), *dependencies],
        route_class=ApiRoute,
        responses=COMMON_ERRORS,
        generate_unique_id_function=lambda route: route.name,
    )


async def _service_dependency(request: Request) -> Service:
    return get_service(request)


async def _settings_dependency(request: Request) -> Settings:
    settings: Settings = request.app.state.settings
    return settings


ServiceDep = Annotated[Service, Depends(_service_dependency)]
SettingsDep = Annotated[Settings, Depends(_settings_dependency)]
