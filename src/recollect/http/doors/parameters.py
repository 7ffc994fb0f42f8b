"""Which parameters of an address a route knows, and which of a request it does not: those are slips, not wishes."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, get_args, get_origin

from fastapi import Request
from fastapi.dependencies.models import Dependant

# What says whose memories are meant, and which part of them; and the headers that say which part.
OWNER_PARAMS = ("user_id", "user", "agent_id", "app_id", "run_id")
SCOPE_PARAMS = (*OWNER_PARAMS, "project_id", "session_id")
SCOPE_HEADERS = ("X-Memory-Project", "X-Memory-Session")


def query_names(dependant: Dependant) -> Iterator[str]:
    """The parameters of the address that a route knows, by itself or by what it depends on."""
    yield from (parameter.alias for parameter in dependant.query_params)
    for dependency in dependant.dependencies:
        yield from query_names(dependency)


def single_names(dependant: Dependant) -> Iterator[str]:
    """Those of them that are meant to come once."""
    for parameter in dependant.query_params:
        if not _is_list(parameter.field_info.annotation):
            yield parameter.alias
    for dependency in dependant.dependencies:
        yield from single_names(dependency)


def unknown_names(request: Request, allowed: Collection[str]) -> list[str]:
    """The parameters of a request's address that are not known, as they come."""
    return [name for name in request.query_params if name not in allowed]


def ignorable_names(request: Request) -> list[str]:
    """The parameters of a request's address that may be passed over: those that name nobody."""
    return [name for name in request.query_params if name not in OWNER_PARAMS]


def repeated_names(request: Request, single: Collection[str]) -> list[str]:
    """Those of the parameters meant to come once that come again: nobody can tell which of them is meant."""
    names = [name for name, _ in request.query_params.multi_items()]
    return [name for name in dict.fromkeys(names) if name in single and names.count(name) > 1]


def empty_names(request: Request, allowed: Collection[str]) -> list[str]:
    """The parameters of a request's address that are given without a value."""
    return [name for name, value in request.query_params.multi_items() if name in allowed and not value]


def empty_headers(request: Request) -> list[str]:
    """The headers that say where, and are given without a value."""
    return [name for name in SCOPE_HEADERS if name in request.headers and not request.headers[name]]


def _is_list(annotation: Any) -> bool:
    """Whether it is a list, alone or beside nothing."""
    return get_origin(annotation) is list or any(get_origin(each) is list for each in get_args(annotation))
