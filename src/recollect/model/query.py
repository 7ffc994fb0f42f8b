"""Typed filters over memories, and what a listing asks for.

A filter is a closed tree: a comparison (`Where`), or `And`, `Or`, `Not` of filters. Its logic has two
values: a comparison with a field that is not set is false, except `ne`, which is true.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Literal, TypeAlias

from recollect.errors import InvalidFilter, InvalidInput
from recollect.model.memory import Status
from recollect.model.text import is_storable


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

ORDERING = frozenset({Op.GT, Op.GTE, Op.LT, Op.LTE})
_ORDERED = {Op.EQ, Op.NE, Op.IN, *ORDERING}
OPERATORS: Mapping[Kind, frozenset[Op]] = {
    Kind.TEXT: frozenset({Op.EQ, Op.NE, Op.IN, Op.CONTAINS}),
    Kind.NUMBER: frozenset(_ORDERED),
    Kind.TIME: frozenset(_ORDERED),
    Kind.TEXTS: frozenset({Op.CONTAINS, Op.IN}),
    Kind.JSON: frozenset(Op),
}

Scalar: TypeAlias = str | int | float | bool | datetime

MAX_VALUES = 1000
MAX_WHOLE = (1 << 63) - 1
_INSIDE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_ -]{0,63}")


@dataclass(frozen=True, slots=True)
class Where:
    """One comparison that makes sense. `metadata` takes the name inside it as `metadata.name`."""

    field: str
    op: Op
    value: Scalar | tuple[Scalar, ...]

    def __post_init__(self) -> None:
        _check_operator(self.field, kind_of_field(self.field), self.op)
        if self.op is Op.IN:
            _check_values(self.field, self.kind, self.value)
        else:
            _check_value(self.field, self.kind, self.value)
            if isinstance(self.value, bool) and self.op in ORDERING:
                raise InvalidFilter(
                    f"{self.field}: {self.value} is neither more nor less than anything; use eq, ne or in"
                )

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

    def __post_init__(self) -> None:
        _check_parts(self.parts)


@dataclass(frozen=True, slots=True)
class Or:
    """True where any part is; an empty one is false."""

    parts: tuple[Filter, ...]

    def __post_init__(self) -> None:
        _check_parts(self.parts)


@dataclass(frozen=True, slots=True)
class Not:
    """True where its part is not."""

    part: Filter

    def __post_init__(self) -> None:
        _check_parts((self.part,))


Filter: TypeAlias = Where | And | Or | Not


def kind_of_field(field: object) -> Kind:
    """What the field holds, or an InvalidFilter for a field that there is not."""
    if not isinstance(field, str):
        raise unknown_field(str(field))
    name, _, inside = field.partition(".")
    kind = FIELDS.get(name)
    if kind is None or bool(inside) != (kind is Kind.JSON):
        raise unknown_field(field)
    if inside and not _INSIDE.fullmatch(inside):
        raise InvalidFilter(f"a metadata name may hold letters, digits, space, '_' and '-', not {inside!r}")
    return kind


def _check_operator(field: str, kind: Kind, op: object) -> None:
    if not isinstance(op, Op):
        raise InvalidFilter(f"{field} is compared with an Op such as Op.EQ, not {op!r}")
    if op not in OPERATORS[kind]:
        raise InvalidFilter(f"{field} cannot be compared with {op}; use {', '.join(sorted(OPERATORS[kind]))}")


def _check_values(field: str, kind: Kind, values: object) -> None:
    if not isinstance(values, tuple):
        raise InvalidFilter(f"{field} in needs a tuple of values, not {values!r}")
    if len(values) > MAX_VALUES:
        raise InvalidFilter(f"{field} in takes at most {MAX_VALUES} values, not {len(values)}")
    for value in values:
        _check_value(field, kind, value)


def _check_value(field: str, kind: Kind, value: object) -> None:
    if kind is Kind.TIME:
        if not isinstance(value, datetime) or value.utcoffset() is None:
            raise InvalidFilter(f"{field} is compared with a datetime that has a zone, not {value!r}")
    elif kind is Kind.NUMBER or (kind is Kind.JSON and isinstance(value, (int, float))):
        if not _is_number(value) and not (kind is Kind.JSON and isinstance(value, bool)):
            raise InvalidFilter(f"{field} is compared with a number, not {value!r}")
    elif not isinstance(value, str):
        raise InvalidFilter(f"{field} is compared with text, not {value!r}")
    elif not is_storable(value):
        raise InvalidFilter(f"{field} is compared with text that holds a NUL character or a lone surrogate")


def _is_number(value: object) -> bool:
    if isinstance(value, int) and not isinstance(value, bool):
        return abs(value) <= MAX_WHOLE
    return isinstance(value, float) and math.isfinite(value)


def _check_parts(parts: object) -> None:
    if not isinstance(parts, tuple) or not all(isinstance(part, (Where, And, Or, Not)) for part in parts):
        raise InvalidFilter(f"And, Or and Not join filters (And and Or a tuple of them), not {parts!r}")


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
        validate_limit(self.limit)


def validate_limit(limit: int) -> int:
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
