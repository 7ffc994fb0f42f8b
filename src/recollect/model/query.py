"""Typed filters over memories, and listings.

A filter is a tree: a comparison (`Where`), or `And`, `Or`, `Not` of filters. Its logic has two values: a comparison
with a missing field is false, except `ne`, which is true.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal, TypeAlias, assert_never

from recollect.errors import InvalidFilter, InvalidInput
from recollect.frozen_dataclass import frozen_dataclass
from recollect.lazy_pattern import lazy_pattern
from recollect.model.memory import Category, MemoryRecord, Status
from recollect.model.text import is_storable
from recollect.model.times import as_utc, now


class Op(StrEnum):
    """A comparison operator."""

    EQ = "eq"
    NE = "ne"
    IN = "in"
    GT = "gt"
    GTE = "gte"
    LT = "lt"
    LTE = "lte"
    CONTAINS = "contains"


class Kind(StrEnum):
    """The kind of a field, which determines its operators and values."""

    TEXT = "text"
    NUMBER = "number"
    TIME = "time"
    TEXTS = "texts"
    JSON = "json"


_FIELD_NAMES = {
    Kind.TEXT: "id project_id session_id level type category status content key value source trust",
    Kind.NUMBER: "importance confidence access_count version",
    Kind.TIME: "created_at updated_at occurred_at valid_from valid_to expires_at last_accessed_at",
    Kind.TEXTS: "tags evidence",
    Kind.JSON: "metadata",
}
FIELDS: Mapping[str, Kind] = {name: kind for kind, names in _FIELD_NAMES.items() for name in names.split()}

_ORDERINGS = {Op.GT: operator.gt, Op.GTE: operator.ge, Op.LT: operator.lt, Op.LTE: operator.le}
ORDERING = frozenset(_ORDERINGS)
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
_INSIDE = lazy_pattern(r"[A-Za-z0-9_][A-Za-z0-9_ -]{0,63}")


@frozen_dataclass
class Where:
    """A valid comparison. A field of `metadata` is written as `metadata.name`."""

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
        """The kind of the field."""
        return FIELDS[self.field.partition(".")[0]]

    @property
    def inside(self) -> str:
        """The name inside metadata, or an empty text."""
        return self.field.partition(".")[2]


@frozen_dataclass
class And:
    """True if all parts are; true without parts."""

    parts: tuple[Filter, ...]


@frozen_dataclass
class Or:
    """True if any part is; false without parts."""

    parts: tuple[Filter, ...]


@frozen_dataclass
class Not:
    """True if its part is false."""

    part: Filter


Filter: TypeAlias = Where | And | Or | Not


def kind_of_field(field: object) -> Kind:
    """Return the kind of a field; raise InvalidFilter for an unknown one."""
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


EVERYTHING = And(())
MAX_LIMIT = 1_000_000
Order: TypeAlias = Literal["newest", "oldest"]


@frozen_dataclass(kw_only=True)
class Listing:
    """Which memories to list, in which order, and where to continue."""

    filter: Filter = EVERYTHING
    statuses: tuple[Status, ...] = (Status.ACTIVE,)
    visible: bool = False
    order: Order = "newest"
    limit: int = 100
    cursor: str | None = None

    def __post_init__(self) -> None:
        validate_limit(self.limit)


def validate_limit(limit: int) -> int:
    """Return the limit; raise InvalidInput if it is out of range."""
    if not 1 <= limit <= MAX_LIMIT:
        raise InvalidInput(f"`limit` must be from 1 to {MAX_LIMIT:,}, got {limit}")
    return limit


def both(first: Filter, second: Filter) -> Filter:
    """Return a filter that is true if both are."""
    if first == EVERYTHING:
        return second
    return first if second == EVERYTHING else And((first, second))


_IS_TURN = Where("category", Op.EQ, str(Category.TURN))


def without_turns_of(session: str) -> Filter:
    """Return the filter that leaves out the turns of a session."""
    return Not(And((_IS_TURN, Where("session_id", Op.EQ, session))))


def session_left_out(filter: Filter) -> str:
    """Return the session of a filter made by `without_turns_of`; empty for any other filter."""
    match filter:
        case Not(And((is_turn, Where(field="session_id", op=Op.EQ, value=str(session))))) if is_turn == _IS_TURN:
            return session
    return ""


def unknown_field(name: str) -> InvalidFilter:
    """Return the error for an unknown field."""
    return InvalidFilter(f"unknown field {name!r}; the fields are {', '.join(FIELDS)} (as metadata.name)")


_JOINERS = {"and", "or", "not"}
_SINGLE = {Op.EQ, *ORDERING}
MAX_DEPTH = 32
MAX_PARTS = 500
# One level of plain values can become three of a filter: not, or, and; the last one an and with its comparisons.
_MAX_LEVELS = 3 * MAX_DEPTH + 2


def where(field: str, op: Op | str, value: Any) -> Where:
    """Return a comparison from plain values; an InvalidFilter lists the valid choices."""
    kind = kind_of_field(field)
    try:
        op = Op(op)
    except ValueError:
        raise InvalidFilter(f"unknown operator {op!r}; the operators are {', '.join(Op)}") from None
    if op is not Op.IN:
        return Where(field, op, _typed(field, kind, value))
    if isinstance(value, (str, bytes, Mapping)) or not hasattr(value, "__iter__"):
        raise InvalidFilter(f"{field} in needs a list of values, not {value!r}")
    return Where(field, op, tuple(_typed(field, kind, each) for each in value))


def _typed(field: str, kind: Kind, value: Any) -> Any:
    """Convert times, which may be written in several ways, and text enums."""
    if kind is Kind.TIME:
        try:
            return as_utc(value, name=field)
        except InvalidInput as error:
            raise InvalidFilter(str(error)) from None
    return str(value) if isinstance(value, str) else value


def parse_filter(plain: Filter | Mapping[str, Any] | None) -> Filter:
    """Return a filter from plain values, such as {"category": "fact", "importance": {"gte": 0.5}}.

    Several names in one mapping must all hold; `and`, `or` take lists and `not` one filter.
    """
    if plain is None:
        return EVERYTHING
    return _within_limits(plain if isinstance(plain, (Where, And, Or, Not)) else _parse(plain, depth=0))


def _within_limits(filter: Filter) -> Filter:
    """Return the filter unless it is too deep or too large; shared parts count each time."""
    waiting, size = [(filter, 0)], 0
    while waiting:
        each, depth = waiting.pop()
        size += 1
        if size > MAX_PARTS:
            raise InvalidFilter(f"the filter has more than {MAX_PARTS} parts; use 'in' with a list of values")
        if depth > _MAX_LEVELS:
            raise InvalidFilter(f"the filter is nested deeper than {_MAX_LEVELS} levels")
        match each:
            case And(parts) | Or(parts) if isinstance(parts, tuple):
                waiting += [(part, depth + 1) for part in parts]
            case Not(part):
                waiting.append((part, depth + 1))
            case Where():
                pass
            case _:
                raise InvalidFilter(f"And and Or join a tuple of filters, and Not has one filter, got {each!r}")
    return filter


def _parse(plain: Any, *, depth: int) -> Filter:
    if depth > MAX_DEPTH:
        raise InvalidFilter(f"the filter is nested deeper than {MAX_DEPTH} levels")
    if not isinstance(plain, Mapping):
        raise InvalidFilter(f"a filter is a mapping such as {{'category': 'fact'}}, not {plain!r}")
    parts: list[Filter] = []
    for name, value in plain.items():
        joiner = name.lower() if isinstance(name, str) else ""
        if joiner in _JOINERS:
            parts.append(_parse_joined(joiner, value, depth=depth + 1))
        elif joiner == "metadata" and isinstance(value, Mapping):
            parts += [_parse_field(f"metadata.{inside}", each) for inside, each in value.items()]
        elif isinstance(name, str):
            parts.append(_parse_field(name, value))
        else:
            raise unknown_field(str(name))
    return parts[0] if len(parts) == 1 else And(tuple(parts))


def _parse_joined(joiner: str, value: Any, *, depth: int) -> Filter:
    if joiner == "not":
        if isinstance(value, list):
            return Not(Or(tuple(_parse(each, depth=depth) for each in value)))
        return Not(_parse(value, depth=depth))
    if not isinstance(value, (list, tuple)):
        raise InvalidFilter(f"{joiner!r} takes a list of filters, not {value!r}")
    parts = tuple(_parse(each, depth=depth) for each in value)
    return And(parts) if joiner == "and" else Or(parts)


def _parse_field(field: str, value: Any) -> Filter:
    if isinstance(value, Mapping):
        if not value:
            raise InvalidFilter(f"{field} is compared with nothing; give an operator such as {{'eq': ...}}")
        return And(tuple(where(field, op, each) for op, each in value.items()))
    if isinstance(value, (list, tuple, set, frozenset)):
        return where(field, Op.IN, value)
    kind = FIELDS.get(field.partition(".")[0])
    return where(field, Op.CONTAINS if kind is Kind.TEXTS else Op.EQ, value)


def any_of(field: str, values: Sequence[str] | str) -> Where:
    """Return a comparison with any of several texts."""
    return where(field, Op.IN, [values] if isinstance(values, str) else list(values))


def matches(record: MemoryRecord, filter: Filter) -> bool:
    """Return whether the memory matches the filter; all databases compare in the same way."""
    match filter:
        case And(parts):
            return all(matches(record, part) for part in parts)
        case Or(parts):
            return any(matches(record, part) for part in parts)
        case Not(part):
            return not matches(record, part)
        case Where():
            return _compare(_field_of(record, filter), filter)
        case _:
            assert_never(filter)


def _field_of(record: MemoryRecord, comparison: Where) -> Any:
    if comparison.inside:
        return record.metadata.get(comparison.inside)
    if comparison.field == "project_id":
        return record.scope.project
    if comparison.field == "session_id":
        return record.scope.session
    return getattr(record, comparison.field)


def _compare(actual: Any, comparison: Where) -> bool:
    op, value = comparison.op, comparison.value
    if isinstance(actual, (tuple, list)):
        return _compare_list(actual, comparison)
    if op is Op.NE:
        return not _same(actual, value)
    if op is Op.EQ:
        return _same(actual, value)
    if op is Op.IN:
        return isinstance(value, tuple) and any(_same(actual, each) for each in value)
    if op is Op.CONTAINS:
        return isinstance(actual, str) and isinstance(value, str) and value in actual
    return _ordered(actual, comparison)


def _compare_list(actual: tuple[Any, ...] | list[Any], comparison: Where) -> bool:
    """Compare a list: it contains a value, or is in values, if one of its members is; it equals nothing."""
    if comparison.op is Op.NE:
        return True
    if (comparison.op is Op.IN and comparison.kind is not Kind.TEXTS) or comparison.op in _SINGLE:
        return False
    expected = comparison.value if isinstance(comparison.value, tuple) else (comparison.value,)
    return any(_same(each, one) for each in actual for one in expected)


def _kind_of(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, (int, float)):
        return "number"
    return "time" if isinstance(value, datetime) else "text" if isinstance(value, str) else "other"


def _same(actual: Any, value: Any) -> bool:
    return _kind_of(actual) == _kind_of(value) and bool(actual == value)


def _ordered(actual: Any, comparison: Where) -> bool:
    kind = _kind_of(actual)
    if kind != _kind_of(comparison.value) or kind in ("bool", "other"):
        return False
    return bool(_ORDERINGS[comparison.op](actual, comparison.value))


def exclude_expired(listing: Listing, *, coarse: bool = False) -> Listing:
    """Return the listing without expired memories, unless it filters by expiry or lists other statuses.

    A `coarse` one is the same for a minute, so that its result can be cached.
    """
    if listing.statuses != (Status.ACTIVE,) or _has_field("expires_at", listing.filter):
        return listing
    moment = now()
    at = moment.replace(second=0, microsecond=0) if coarse else moment
    return replace(listing, filter=both(listing.filter, Not(Where("expires_at", Op.LTE, at))))


def _has_field(field: str, filter: Filter) -> bool:
    if isinstance(filter, Where):
        return filter.field == field
    parts = (filter.part,) if isinstance(filter, Not) else filter.parts
    return any(_has_field(field, part) for part in parts)
