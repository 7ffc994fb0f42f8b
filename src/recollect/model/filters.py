"""Reading filters from plain values, and holding them against a memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, assert_never

from recollect.errors import InvalidFilter, InvalidInput
from recollect.model.memory import MemoryRecord
from recollect.model.query import (
    EVERYTHING,
    FIELDS,
    ORDERING,
    And,
    Filter,
    Kind,
    Not,
    Op,
    Or,
    Where,
    kind_of_field,
    unknown_field,
)
from recollect.model.times import as_utc

_JOINERS = {"and", "or", "not"}
_SINGLE = {Op.EQ, *ORDERING}
MAX_DEPTH = 32
MAX_PARTS = 500
# One level of plain values can become three of a filter: not, or, and; the last one an and with its comparisons.
_MAX_LEVELS = 3 * MAX_DEPTH + 2


def where(field: str, op: Op | str, value: Any) -> Where:
    """A comparison from plain values, or an InvalidFilter that says what would make sense."""
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
    """Times may be written in several ways; text is plain text, whatever enum it came from."""
    if kind is Kind.TIME:
        try:
            return as_utc(value, name=field)
        except InvalidInput as error:
            raise InvalidFilter(str(error)) from None
    return str(value) if isinstance(value, str) else value


def parse_filter(plain: Filter | Mapping[str, Any] | None) -> Filter:
    """A filter from plain values, such as {"category": "fact", "importance": {"gte": 0.5}}.

    Several names in one mapping must all hold; `and`, `or` take lists and `not` one filter.
    """
    if plain is None:
        return EVERYTHING
    return _within_limits(plain if isinstance(plain, (Where, And, Or, Not)) else _read(plain, depth=0))


def _within_limits(filter: Filter) -> Filter:
    """The filter, if it is not too deep or large; counted as written out, though parts may be shared."""
    waiting, size = [(filter, 0)], 0
    while waiting:
        each, depth = waiting.pop()
        size += 1
        if size > MAX_PARTS:
            raise InvalidFilter(f"the filter has more than {MAX_PARTS} parts; use 'in' with a list of values")
        if depth > _MAX_LEVELS:
            raise InvalidFilter(f"the filter is nested deeper than {_MAX_LEVELS} levels")
        match each:
            case And(parts) | Or(parts):
                waiting += [(part, depth + 1) for part in parts]
            case Not(part):
                waiting.append((part, depth + 1))
            case Where():
                pass
            case _:
                assert_never(each)
    return filter


def _read(plain: Any, *, depth: int) -> Filter:
    if depth > MAX_DEPTH:
        raise InvalidFilter(f"the filter is nested deeper than {MAX_DEPTH} levels")
    if not isinstance(plain, Mapping):
        raise InvalidFilter(f"a filter is a mapping such as {{'category': 'fact'}}, not {plain!r}")
    parts: list[Filter] = []
    for name, value in plain.items():
        joiner = name.lower() if isinstance(name, str) else ""
        if joiner in _JOINERS:
            parts.append(_read_joined(joiner, value, depth=depth + 1))
        elif joiner == "metadata" and isinstance(value, Mapping):
            parts += [_read_field(f"metadata.{inside}", each) for inside, each in value.items()]
        elif isinstance(name, str):
            parts.append(_read_field(name, value))
        else:
            raise unknown_field(str(name))
    return parts[0] if len(parts) == 1 else And(tuple(parts))


def _read_joined(joiner: str, value: Any, *, depth: int) -> Filter:
    if joiner == "not":
        if isinstance(value, list):
            return Not(Or(tuple(_read(each, depth=depth) for each in value)))
        return Not(_read(value, depth=depth))
    if not isinstance(value, (list, tuple)):
        raise InvalidFilter(f"{joiner!r} takes a list of filters, not {value!r}")
    parts = tuple(_read(each, depth=depth) for each in value)
    return And(parts) if joiner == "and" else Or(parts)


def _read_field(field: str, value: Any) -> Filter:
    if isinstance(value, Mapping):
        if not value:
            raise InvalidFilter(f"{field} is compared with nothing; give an operator such as {{'eq': ...}}")
        return And(tuple(where(field, op, each) for op, each in value.items()))
    if isinstance(value, (list, tuple, set, frozenset)):
        return where(field, Op.IN, value)
    kind = FIELDS.get(field.partition(".")[0])
    return where(field, Op.CONTAINS if kind is Kind.TEXTS else Op.EQ, value)


def any_of(field: str, values: Sequence[str] | str) -> Where:
    """A comparison with one of several texts; one text alone is taken as a list of one."""
    return where(field, Op.IN, [values] if isinstance(values, str) else list(values))


def matches(record: MemoryRecord, filter: Filter) -> bool:
    """Whether the memory passes; the meaning every store has to agree with."""
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
    """A list contains a value or is in values if one of its members is; it equals nothing."""
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
    op, value = comparison.op, comparison.value
    if _kind_of(actual) != _kind_of(value) or _kind_of(actual) in ("bool", "other"):
        return False
    if op is Op.GT:
        return bool(actual > value)
    if op is Op.GTE:
        return bool(actual >= value)
    return bool(actual < value) if op is Op.LT else bool(actual <= value)
