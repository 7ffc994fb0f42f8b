"""Typed filters over memories, and what a listing asks for.

A filter is a closed tree: a comparison (`Where`), or `And`, `Or`, `Not` of filters. Its logic has two
values: a comparison with a field that is not set is false, except `ne`, which is true.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Literal, TypeAlias

from recollect.errors import InvalidFilter, InvalidInput
from recollect.model.memory import Status


class Op(StrEnum):
    """How a field is compared."""

    EQ = "eq"
    NE = "ne"
    IN = "in"
    GT = "gt"
    GTE = "gte"
    LT = "lt"
    LTE = "lte"
    CONTAINS = "contains"


class Kind(StrEnum):
    """What a field holds, and so which operators and values fit it."""

    TEXT = "text"
    NUMBER = "number"
    TIME = "time"
    TEXTS = "texts"
    JSON = "json"


FIELDS: Mapping[str, Kind] = {
    "id": Kind.TEXT,
    "project_id": Kind.TEXT,
    "session_id": Kind.TEXT,
    "level": Kind.TEXT,
    "type": Kind.TEXT,
    "category": Kind.TEXT,
    "status": Kind.TEXT,
    "content": Kind.TEXT,
    "key": Kind.TEXT,
    "value": Kind.TEXT,
    "source": Kind.TEXT,
    "trust": Kind.TEXT,
    "importance": Kind.NUMBER,
    "confidence": Kind.NUMBER,
    "access_count": Kind.NUMBER,
    "version": Kind.NUMBER,
    "created_at": Kind.TIME,
    "updated_at": Kind.TIME,
    "occurred_at": Kind.TIME,
    "valid_from": Kind.TIME,
    "valid_to": Kind.TIME,
    "expires_at": Kind.TIME,
    "last_accessed_at": Kind.TIME,
    "tags": Kind.TEXTS,
    "evidence": Kind.TEXTS,
    "metadata": Kind.JSON,
}

_ORDERED = {Op.EQ, Op.NE, Op.IN, Op.GT, Op.GTE, Op.LT, Op.LTE}
OPERATORS: Mapping[Kind, frozenset[Op]] = {
    Kind.TEXT: frozenset({Op.EQ, Op.NE, Op.IN, Op.CONTAINS}),
    Kind.NUMBER: frozenset(_ORDERED),
    Kind.TIME: frozenset(_ORDERED),
    Kind.TEXTS: frozenset({Op.CONTAINS, Op.IN}),
    Kind.JSON: frozenset(Op),
}

Scalar: TypeAlias = str | int | float | bool | datetime


@dataclass(frozen=True, slots=True)
class Where:
    """One comparison. `metadata` takes the name inside it as `metadata.name`."""

    field: str
    op: Op
    value: Scalar | tuple[Scalar, ...]

    @property
    def kind(self) -> Kind:
        """What the field holds."""
        return FIELDS[self.field.partition(".")[0]]

    @property
    def inside(self) -> str:
        """The name inside metadata, or an empty text."""
        return self.field.partition(".")[2]


@dataclass(frozen=True, slots=True)
class And:
    """True where every part is; an empty one is true."""

    parts: tuple[Filter, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """True where any part is; an empty one is false."""

    parts: tuple[Filter, ...]


@dataclass(frozen=True, slots=True)
class Not:
    """True where its part is not."""

    part: Filter


Filter: TypeAlias = Where | And | Or | Not

EVERYTHING = And(())
MAX_LIMIT = 1_000_000
Order: TypeAlias = Literal["newest", "oldest"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """Which memories to list, in which order, and where to go on from."""

    filter: Filter = EVERYTHING
    statuses: tuple[Status, ...] = (Status.ACTIVE,)
    visible: bool = False
    order: Order = "newest"
    limit: int = 100
    cursor: str | None = None

    def __post_init__(self) -> None:
        checked_limit(self.limit)


def checked_limit(limit: int) -> int:
    """The limit, or an InvalidInput for one that no page could have."""
    if not 1 <= limit <= MAX_LIMIT:
        raise InvalidInput(f"limit is {limit}; it can be from 1 to {MAX_LIMIT:,}")
    return limit


def both(first: Filter, second: Filter) -> Filter:
    """True where both are, without wrapping what is always true."""
    if first == EVERYTHING:
        return second
    return first if second == EVERYTHING else And((first, second))


def unknown_field(name: str) -> InvalidFilter:
    """The error for a field that does not exist."""
    return InvalidFilter(f"unknown field {name!r}; the fields are {', '.join(FIELDS)} (as metadata.name)")
