"""Which parameters of an address a route knows, and which of a request it does not: those are slips, not wishes."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from fastapi import Request
from fastapi.dependencies.models import Dependant


def query_names(dependant: Dependant) -> Iterator[str]:
    """The parameters of the address that a route knows, by itself or by what it depends on."""
    yield from (parameter.alias for parameter in dependant.query_params)
    for needed in dependant.dependencies:
        yield from query_names(needed)


def strange_names(request: Request, known: Collection[str]) -> list[str]:
    """The parameters of a request's address that are not known, as they come."""
    return [name for name in request.query_params if name not in known]
