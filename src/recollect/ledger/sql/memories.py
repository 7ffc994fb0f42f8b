"""Memories as rows (indexed columns, and a JSON body for the other fields), and filters as SQL."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, assert_never

from recollect.aio.erasable_cache import erasable_cache
from recollect.ledger.codec import LIST_FIELDS, make_page, parse_cursor
from recollect.ledger.sql.tx import OPERATORS, Dialect, Row, Tx
from recollect.ledger.types import NumberedRecord
from recollect.model.memory import Category, MemoryRecord, MemoryType, Status, Trust
from recollect.model.query import EVERYTHING, FIELDS, And, Filter, Kind, Listing, Not, Op, Or, Where, validate_limit
from recollect.model.result import FACETS, Facets, Page
from recollect.model.scope import Level, Scope
from recollect.model.text import is_storable
from recollect.model.times import from_micros, micros_or_none, now, time_or_none, to_micros
from recollect.models.traits import compute_traits, speaker_name

_DAY_MICROS = 86_400_000_000
_FACET_COLUMNS = ("category", "type", "level", "project_id", "session_id", "status")
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


_TIMES = ("created_at", "updated_at", "occurred_at", "valid_from", "valid_to", "expires_at", "last_accessed_at")
_PLAIN = ("id", "content", "importance", "confidence", "access_count", "version")
_KINDS = ("level", "status", "type", "category")
_BODY = ("value", "source", "trust", "evidence", "tags", "metadata", "detail", "superseded_by", "prompt_digest")
_BLANK = {name: MemoryRecord.__dataclass_fields__[name].default for name in _BODY} | {"metadata": {}, "detail": {}}

MEMORY_COLUMNS = (
    "id", "user_id", "project_id", "session_id", "level", "place", "status", "type", "category", "content",
    '"key"', "importance", "confidence", *_TIMES, "access_count", "version", "fingerprint", "body",
)  # fmt: skip
SELECTED_COLUMNS = ", ".join(MEMORY_COLUMNS)
_NAMES = tuple(name.strip('"') for name in MEMORY_COLUMNS)
# Derived columns for reading many memories at once; never converted back.
_DERIVED = ("revision", "traits", "speaker")
# Not overwritten, since an access may be counted while a change is planned.
_NOT_UPDATED = ("id", "user_id", "access_count", "last_accessed_at")


def record_to_params(record: MemoryRecord, *, revision: int) -> dict[str, Any]:
    """Return the named parameters that write a record."""
    derived = {"revision": revision, "traits": compute_traits(record), "speaker": speaker_name(record)}
    return _envelope(record) | derived


def record_to_row(record: MemoryRecord) -> list[Any]:
    """Convert a record to plain JSON values in the order of SELECTED_COLUMNS, for `record_from_row`."""
    row = _envelope(record)
    return [row[name] for name in _NAMES]


def _envelope(record: MemoryRecord) -> dict[str, Any]:
    row: dict[str, Any] = {name: getattr(record, name) for name in _PLAIN}
    row |= {name: str(getattr(record, name)) for name in _KINDS}
    for name in _TIMES:
        row[name] = micros_or_none(getattr(record, name))
    return row | {
        "user_id": record.scope.user,
        "project_id": record.scope.project,
        "session_id": record.scope.session,
        "place": record.visibility_key,
        "key": record.key,
        "fingerprint": record.fingerprint,
        "body": _body(record),
    }


def _body(record: MemoryRecord) -> str:
    body = {}
    for name in _BODY:
        value = getattr(record, name)
        if value != _BLANK[name]:
            body[name] = list(value) if name in LIST_FIELDS else value
    return json.dumps(body, ensure_ascii=False, separators=(",", ":"))


# A dict lookup costs a fifth of calling the enum, and a search reads many rows.
LEVELS = {str(level): level for level in Level}
STATUSES = {str(status): status for status in Status}
TYPES = {str(type): type for type in MemoryType}
CATEGORIES = {str(category): category for category in Category}


def record_from_row(row: Row) -> MemoryRecord:
    """Convert a row of SELECTED_COLUMNS."""
    (
        id, user, project, session, level, _, status, type, category, content, key, importance, confidence,
        created_at, updated_at, occurred_at, valid_from, valid_to, expires_at, last_accessed_at,
        access_count, version, _, body,
    ) = row  # fmt: skip
    made = from_micros(created_at)
    return MemoryRecord(
        id=id,
        scope=_scope(user, project, session),
        level=LEVELS[level],
        status=STATUSES[status],
        type=TYPES[type],
        category=CATEGORIES[category],
        content=content,
        key=key,
        importance=importance,
        confidence=confidence,
        created_at=made,
        # Most records were never changed, and a turn occurred when it was created.
        updated_at=made if updated_at == created_at else from_micros(updated_at),
        occurred_at=made if occurred_at == created_at else time_or_none(occurred_at),
        valid_from=time_or_none(valid_from),
        valid_to=time_or_none(valid_to),
        expires_at=time_or_none(expires_at),
        last_accessed_at=time_or_none(last_accessed_at),
        access_count=access_count,
        version=version,
        **(_read_body(body) if body != "{}" else {}),
    )


# A page of memories shares a few scopes, so that their ids are validated once.
_scope = erasable_cache(4096)(Scope)


def _read_body(text: str) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(text)
    for name in LIST_FIELDS:
        if name in body:
            body[name] = tuple(body[name])
    if "trust" in body:
        body["trust"] = Trust(body["trust"])
    return body


INSERT_MEMORY = (
    f"INSERT INTO memories ({SELECTED_COLUMNS}, {', '.join(_DERIVED)}, term_count) VALUES "
    f"({', '.join(':' + name.strip(chr(34)) for name in (*MEMORY_COLUMNS, *_DERIVED))}, :term_count)"
)
UPDATE_MEMORY = (
    "UPDATE memories SET "
    + ", ".join(
        f"{name} = :{name.strip(chr(34))}" for name in (*MEMORY_COLUMNS, *_DERIVED) if name not in _NOT_UPDATED
    )
    + " WHERE user_id = :user_id AND id = :id"
)


async def by_ids(tx: Tx, scope: Scope, ids: Sequence[str]) -> dict[str, MemoryRecord]:
    """Return the user's memories of these ids."""
    # Unstorable ids cannot exist.
    ids = [id for id in dict.fromkeys(ids) if is_storable(id)]
    if not ids:
        return {}
    rows = await tx.rows(
        f"SELECT {SELECTED_COLUMNS} FROM memories WHERE user_id = :user AND {tx.dialect.among('id', 'ids')}",
        {"user": scope.user, "ids": ids},
    )
    return {record.id: record for record in map(record_from_row, rows)}


async def get(tx: Tx, scope: Scope, ids: Sequence[str]) -> list[MemoryRecord]:
    """Return the user's memories of these ids, in their order; other ids are left out."""
    records = await by_ids(tx, scope, ids)
    return [records[id] for id in ids if id in records]


async def find(tx: Tx, scope: Scope, listing: Listing) -> Page:
    """Return a page of the memories in the scope, in order of their creation."""
    params: dict[str, Any] = {}
    sql = _listing_condition(tx, scope, listing, params)
    newest = listing.order == "newest"
    if listing.cursor is not None:
        params["at"], params["last"] = parse_cursor(listing.cursor)
        sql += f" AND (created_at, id) {'<' if newest else '>'} (:at, :last)"
    direction = "DESC" if newest else "ASC"
    params["limit"] = listing.limit + 1
    rows = await tx.rows(
        f"SELECT {SELECTED_COLUMNS} FROM memories WHERE {sql} "
        f"ORDER BY created_at {direction}, id {direction} LIMIT :limit",
        params,
    )
    return make_page([record_from_row(row) for row in rows], listing.limit)


async def count(tx: Tx, scope: Scope, listing: Listing) -> int:
    """Return how many memories the listing has in all, whatever its limit and cursor."""
    params: dict[str, Any] = {}
    rows = await tx.rows(
        f"SELECT count(*) FROM memories WHERE {_listing_condition(tx, scope, listing, params)}", params
    )
    return int(rows[0][0])


async def facets(tx: Tx, scope: Scope, listing: Listing) -> Facets:
    """Count the memories of a listing by their fields; those of other statuses count for `status` alone."""
    params: dict[str, Any] = {}
    condition = _listing_condition(tx, scope, replace(listing, statuses=()), params)
    in_body = (f"COALESCE({tx.dialect.in_body(name)}, {_IN_BODY[name]})" for name in ("source", "trust"))
    # Grouped by the day, because the databases name months differently.
    day = f"COALESCE(occurred_at, created_at) / {_DAY_MICROS}"
    columns = (*_FACET_COLUMNS, *in_body, day, f"COALESCE({tx.dialect.in_body('tags')}, '[]')")
    names = ", ".join(map(str, range(1, len(columns) + 1)))
    rows = await tx.rows(
        f"SELECT {', '.join(columns)}, count(*) FROM memories WHERE {condition} GROUP BY {names}", params
    )
    counts: dict[str, Counter[str]] = {name: Counter() for name in FACETS}
    total = 0
    for *values, source, trust, day_number, tags, count in rows:
        row = dict(zip(_FACET_COLUMNS, values, strict=True))
        counts["status"][row.pop("status")] += count
        if STATUSES[values[_FACET_COLUMNS.index("status")]] not in listing.statuses:
            continue
        total += count
        month = from_micros(day_number * _DAY_MICROS).strftime("%Y-%m")
        for name, value in {**row, "source": source, "trust": trust, "month": month}.items():
            counts[name][value] += count
        for tag in json.loads(tags):
            counts["tags"][tag] += count
    return Facets(total, {name: tuple(counts[name].items()) for name in FACETS})


def _listing_condition(tx: Tx, scope: Scope, listing: Listing, params: dict[str, Any]) -> str:
    sql = visible_condition(scope, tx.dialect, params) if listing.visible else scope_condition(scope, params)
    if listing.statuses:
        params["statuses"] = [str(status) for status in listing.statuses]
        sql += f" AND {tx.dialect.among('status', 'statuses')}"
    return f"{sql} AND ({filter_condition(listing.filter, tx.dialect, params)})"


async def fetch(
    tx: Tx, scope: Scope, rows: Sequence[int], *, filter: Filter, as_of: datetime | None = None
) -> list[NumberedRecord]:
    """Return the memories of the rows that the scope can see, are valid (now or `as_of`) and pass the filter."""
    params: dict[str, Any] = {"rows": [int(row) for row in rows]}
    sql = _recall_condition(tx, scope, filter, params, as_of=as_of)
    table = f"memories {tx.dialect.fragments['by_row']}"
    among_rows = tx.dialect.among_numbers("row", "rows")
    fetched = await tx.rows(f"SELECT {SELECTED_COLUMNS}, row FROM {table} WHERE {among_rows} AND {sql}", params)
    return [NumberedRecord(row[-1], record_from_row(row[:-1])) for row in fetched]


async def matching(tx: Tx, scope: Scope, filter: Filter, *, as_of: datetime | None = None) -> list[int]:
    """Return every row that the scope can see, is valid (now or `as_of`) and passes the filter."""
    params: dict[str, Any] = {}
    sql = _recall_condition(tx, scope, filter, params, as_of=as_of)
    rows = await tx.rows(f"SELECT row FROM memories WHERE {sql}", params)
    return [row[0] for row in rows]


def compares_columns(filter: Filter) -> bool:
    """Return whether the filter reads columns alone, and not the JSON of each row."""
    match filter:
        case And(parts) | Or(parts):
            return all(map(compares_columns, parts))
        case Not(part):
            return compares_columns(part)
        case Where():
            return filter.kind not in (Kind.JSON, Kind.TEXTS) and filter.field not in _IN_BODY
        case _:
            assert_never(filter)


async def keyed_facts(
    tx: Tx,
    scope: Scope,
    filter: Filter,
    *,
    min_importance: float,
    limit: int,
    with_rules: bool = False,
    as_of: datetime | None = None,
) -> list[MemoryRecord]:
    """Return the visible, valid facts with a key that pass the filter, most important first, then oldest.

    With `with_rules`, the constraints and instructions without a key and a date follow, most important first, then
    newest.
    """
    params: dict[str, Any] = {"least": min_importance}
    condition = f"{_recall_condition(tx, scope, filter, params, as_of=as_of)} AND importance >= :least"
    # Most users have none; sorting only the numbers is cheaper than sorting whole rows.
    keyed = await tx.rows(f'SELECT row, importance FROM memories WHERE {condition} AND "key" IS NOT NULL', params)
    best = sorted(keyed, key=lambda each: (-each[1], each[0]))
    if with_rules and len(best) < limit:
        unkeyed = await tx.rows(
            f"SELECT row, importance FROM memories WHERE {condition} AND category IN ('constraint', 'instruction') "
            'AND "key" IS NULL AND occurred_at IS NULL',
            params,
        )
        best += sorted(unkeyed, key=lambda each: (-each[1], -each[0]))
    ranks = {row: rank for rank, (row, _) in enumerate(best[: validate_limit(limit)])}
    facts = await fetch(tx, scope, list(ranks), filter=filter, as_of=as_of) if ranks else []
    return [each.record for each in sorted(facts, key=lambda each: ranks[each.row])]


def _recall_condition(tx: Tx, scope: Scope, filter: Filter, params: dict[str, Any], *, as_of: datetime | None) -> str:
    sql = f"{visible_condition(scope, tx.dialect, params)} AND {valid_condition(as_of, params)}"
    return sql if filter == EVERYTHING else f"{sql} AND ({filter_condition(filter, tx.dialect, params)})"
