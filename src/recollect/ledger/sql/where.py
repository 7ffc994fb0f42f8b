"""Filters as SQL. Only our own column names become SQL text; every value is a parameter."""

from __future__ import annotations

from datetime import datetime
from typing import Any, assert_never

from recollect.ledger.sql.tx import OPERATORS, Dialect
from recollect.model.query import FIELDS, And, Filter, Kind, Not, Op, Or, Where
from recollect.model.scope import Scope
from recollect.model.times import now, to_micros

# Text fields of the body, and their defaults.
_IN_BODY = {"value": "NULL", "source": "''", "trust": "'high'"}
_COLUMNS = {name: '"key"' if name == "key" else name for name in FIELDS}


def filter_condition(filter: Filter, dialect: Dialect, params: dict[str, Any]) -> str:
    """Return SQL that is true exactly where the filter holds; add its values to `params`."""
    match filter:
        case And(parts):
            return " AND ".join(f"({filter_condition(part, dialect, params)})" for part in parts) or "1 = 1"
        case Or(parts):
            return " OR ".join(f"({filter_condition(part, dialect, params)})" for part in parts) or "1 = 0"
        case Not(part):
            return f"NOT ({filter_condition(part, dialect, params)})"
        case Where():
            # A missing field compares as NULL, which counts as false.
            negated = "NOT " if filter.op is Op.NE else ""
            return f"{negated}COALESCE({_comparison(filter, dialect, params)}, 1 = 0)"
        case _:
            assert_never(filter)


def _comparison(filter: Where, dialect: Dialect, params: dict[str, Any]) -> str:
    name = f"f{len(params)}"
    params[name] = _value(filter)
    if filter.kind is Kind.JSON:
        params[f"{name}_in"] = filter.inside
        return dialect.metadata_test(filter, name, f"{name}_in")
    column = _COLUMNS[filter.field]
    if filter.kind is Kind.TEXTS:
        return dialect.has_member(column, name, any_of=filter.op is Op.IN)
    if filter.field in _IN_BODY:
        column = f"COALESCE({dialect.in_body(column)}, {_IN_BODY[filter.field]})"
    if filter.kind is Kind.NUMBER:
        # An integer column may be compared with any number.
        column = f"CAST({column} AS DOUBLE PRECISION)"
    if filter.op is Op.IN:
        return dialect.among(column, name)
    if filter.op is Op.CONTAINS:
        return dialect.contains(column, name)
    return f"{column} {OPERATORS[filter.op]} :{name}"


def _value(filter: Where) -> Any:
    if filter.kind is Kind.TIME:
        if isinstance(filter.value, tuple):
            return [to_micros(each) for each in filter.value]  # type: ignore[arg-type]
        return to_micros(filter.value)  # type: ignore[arg-type]
    if filter.kind is Kind.NUMBER:
        return [float(v) for v in filter.value] if isinstance(filter.value, tuple) else float(filter.value)  # type: ignore[arg-type]
    return list(filter.value) if isinstance(filter.value, tuple) else filter.value


def scope_condition(scope: Scope, params: dict[str, Any]) -> str:
    """Return SQL for everything of the user, the project or the session."""
    params["user"] = scope.user
    sql = "user_id = :user"
    for column, value in (("project_id", scope.project), ("session_id", scope.session)):
        if value:
            params[column] = value
            sql += f" AND {column} = :{column}"
    return sql


def visible_condition(scope: Scope, dialect: Dialect, params: dict[str, Any]) -> str:
    """Return SQL for everything that recall may see from the scope."""
    params["user"] = scope.user
    if scope.everywhere:
        return "user_id = :user"
    params["places"] = list(scope.visible_keys)
    return f"user_id = :user AND {dialect.among('place', 'places')}"


def valid_condition(moment: datetime | None, params: dict[str, Any]) -> str:
    """Return SQL for what is valid now, or was at a moment, by the rules of `model.validity`."""
    if moment is None:
        params["now"] = to_micros(now())
        return (
            "status = 'active' AND (valid_from IS NULL OR valid_from <= :now) "
            "AND (valid_to IS NULL OR valid_to > :now) AND (expires_at IS NULL OR expires_at > :now)"
        )
    params["as_of"] = to_micros(moment)
    return (
        "status IN ('active', 'superseded') AND COALESCE(valid_from, created_at) <= :as_of "
        "AND (valid_to > :as_of OR (valid_to IS NULL AND (status = 'active' OR updated_at > :as_of))) "
        "AND (expires_at IS NULL OR expires_at > :as_of)"
    )
