"""Numbers between two ends, refused in plain words, and the option that takes how many."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from functools import wraps
from typing import Any, TypedDict, TypeVar

import click

from recollect.errors import InvalidFilter, InvalidInput
from recollect.model.memory import Category, MemoryType, Status, Trust
from recollect.model.query import EVERYTHING, FIELDS, And, Filter, Kind, Not, Op, any_of, unknown_field, where
from recollect.model.scope import Level
from recollect.model.times import as_utc, now

_F = TypeVar("_F", bound=Callable[..., Any])


class WholeNumber(click.IntRange):
    """An integer; what is none "is not a valid whole number"."""

    name = "whole number"


class RealNumber(click.FloatRange):
    """A number; what is none "is not a valid number"."""

    name = "number"


def limit_option(help: str = "How many.") -> Callable[[_F], _F]:
    """How many rows a command shows: --limit, or -n."""
    return click.option(
        "--limit", "-n", type=WholeNumber(1, 1000), default=20, metavar="N", show_default=True, help=help
    )


_OPERATORS = {
    ">=": Op.GTE, "<=": Op.LTE, "!=": Op.NE, "=": Op.EQ, ">": Op.GT, "<": Op.LT, "~": Op.CONTAINS, "in": Op.IN,
}  # fmt: skip
_COMPARISON = re.compile(r"\s*([\w.\- ]*?[\w\-])\s*(>=|<=|!=|==|=|>|<|~|(?<=\s)in(?=\s))\s*(.*?)\s*", re.DOTALL)
AGO_PATTERN = re.compile(r"(\d{1,6})\s*([hdw])")
_UNITS = {"h": "hours", "d": "days", "w": "weeks"}
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")
_ENUM_FIELDS: Mapping[str, type[StrEnum]] = {
    "category": Category, "type": MemoryType, "status": Status, "trust": Trust, "level": Level,
}  # fmt: skip


def parse_where(text: str) -> Filter:
    """A comparison such as importance>=0.5, tags~travel or "category in fact,event"."""
    match = _COMPARISON.fullmatch(text)
    if match is None:
        raise InvalidFilter(
            f"cannot read --where {text!r}; write it as importance>=0.5, category=fact, tags~travel "
            f'or "category in fact,event"; the signs are {" ".join(_OPERATORS)}'
        )
    field, operator, value = match.groups()
    op = _OPERATORS["=" if operator == "==" else operator]
    kind = FIELDS.get(field.partition(".")[0])
    if kind is None:
        raise unknown_field(field)
    if kind is Kind.TEXTS and op in (Op.EQ, Op.NE):
        contains = where(field, Op.CONTAINS, value)
        return Not(contains) if op is Op.NE else contains
    if op is Op.IN:
        return where(field, op, [_parse_value(field, kind, op, each.strip()) for each in value.split(",")])
    return where(field, op, _parse_value(field, kind, op, value))


def _parse_value(field: str, kind: Kind, op: Op, text: str) -> Any:
    """The text as the kind of value that the field is compared with."""
    if kind is Kind.TIME:
        return parse_cli_time(text, name=field)
    if field in _ENUM_FIELDS and op is not Op.CONTAINS and text not in tuple(_ENUM_FIELDS[field]):
        raise InvalidFilter(f"unknown {field} {text!r}; it is one of {', '.join(_ENUM_FIELDS[field])}")
    if kind not in (Kind.NUMBER, Kind.JSON) or (kind is Kind.JSON and op is Op.CONTAINS):
        return text
    value = parse_plain_value(text)
    if kind is Kind.NUMBER and (isinstance(value, bool) or not isinstance(value, (int, float))):
        raise InvalidFilter(f"{field} is compared with a number, not {text!r}")
    return value


def enum_choice(kind: type[StrEnum]) -> dict[str, Any]:
    """What makes an option take one of the values of an enumeration, written as they are stored."""
    name = kind.__name__.removeprefix("Memory").upper()
    return {"type": click.Choice([each.value for each in kind]), "metavar": name}


def parse_plain_value(text: str) -> Any:
    """A number, true, false or quoted text as JSON has it; anything else is text as it stands."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value if isinstance(value, (str, bool, int, float)) else text


def parse_cli_time(text: str, *, name: str) -> Any:
    """A moment: ISO 8601, or so long ago, such as 24h, 7d or 2w."""
    ago = AGO_PATTERN.fullmatch(text.strip())
    try:
        return now() - timedelta(**{_UNITS[ago[2]]: int(ago[1])}) if ago else as_utc(text, name=name)
    except OverflowError:
        raise InvalidInput(f"{name}: {text} ago is before the calendar begins") from None
    except InvalidInput as error:
        raise InvalidInput(f"{error}, or how long ago: 24h, 7d or 2w") from None


def filter_options(function: Callable[..., None]) -> Callable[..., None]:
    """Give a command --where and its shortcuts; it gets them as one `filter`."""

    @wraps(function)
    def filtered(
        *args: Any,
        where: Sequence[str],
        category: Sequence[str],
        type: Sequence[str],
        tag: Sequence[str],
        since: str | None,
        until: str | None,
        **kwargs: Any,
    ) -> None:
        parts = [parse_where(text) for text in where]
        parts += [any_of(name, values) for name, values in (("category", category), ("type", type)) if values]
        parts += [_tag_filter(each) for each in tag]
        parts += _time_filters(since, until)
        function(*args, filter=_join_filters(parts), **kwargs)

    for option in reversed(_build_filter_options()):
        filtered = option(filtered)
    return filtered


def _build_filter_options() -> list[Callable[[Callable[..., None]], Callable[..., None]]]:
    return [
        click.option(
            "--where",
            multiple=True,
            metavar="TEST",
            help="Only where this holds: importance>=0.5, category=fact, tags~travel, metadata.trip=hawaii, "
            '"category in fact,event". All of several must hold.',
        ),
        click.option("--category", multiple=True, **enum_choice(Category), help="Only of this category; or these."),
        click.option("--type", multiple=True, **enum_choice(MemoryType), help="Only of this type; or these."),
        click.option("--tag", multiple=True, metavar="TAG", help="Only with this tag; all of several."),
        click.option("--since", metavar="TIME", help="Only from then on: 2026-03-15, or 24h, 7d, 2w ago. UTC."),
        click.option("--until", metavar="TIME", help="Only up to then; a day counts as a whole."),
    ]


def _tag_filter(tag: str) -> Filter:
    return where("tags", Op.CONTAINS, tag)


def _time_filters(since: str | None, until: str | None) -> list[Filter]:
    parts: list[Filter] = []
    if since is not None:
        parts.append(where("created_at", Op.GTE, parse_cli_time(since, name="--since")))
    if until is not None:
        end = parse_cli_time(until, name="--until")
        if _DAY.fullmatch(until.strip()):
            end += timedelta(days=1)
        parts.append(where("created_at", Op.LT, end))
    return parts


def _join_filters(parts: Sequence[Filter]) -> Filter:
    if not parts:
        return EVERYTHING
    return parts[0] if len(parts) == 1 else And(tuple(parts))


class SearchOptions(TypedDict):
    """What those options were given as, under the names of the Python API."""

    limit: int | None
    min_score: float | None
    filters: Filter
    at: datetime | str | None
    as_of: datetime | str | None


AS_OF_OPTION = click.option(
    "--as-of", metavar="TIME", help="Answer from what held then, as it was: 2026-03-15, or 24h, 7d, 2w ago."
)


def search_options(*, min_limit: int) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command these options and the filters; it gets them as one `asked`."""

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        @wraps(function)
        def with_search_options(
            *args: Any,
            limit: int | None,
            min_score: float | None,
            at: str | None,
            as_of: str | None,
            filter: Filter,
            **kwargs: Any,
        ) -> None:
            options = SearchOptions(
                limit=limit,
                min_score=min_score,
                filters=filter,
                at=parse_moment(at, name="--at"),
                as_of=parse_moment(as_of, name="--as-of"),
            )
            function(*args, options=options, **kwargs)

        decorated = filter_options(with_search_options)
        for option in reversed(_build_search_options(min_limit)):
            decorated = option(decorated)
        return decorated

    return decorate


def parse_moment(text: str | None, *, name: str) -> datetime | str | None:
    """A moment as the API takes it: so long ago, or the text, whose own zone says where days begin."""
    if text is None:
        return None
    parsed: datetime = parse_cli_time(text, name=name)
    return parsed if AGO_PATTERN.fullmatch(text.strip()) else text.strip()


def _build_search_options(min_limit: int) -> list[Callable[[Callable[..., None]], Callable[..., None]]]:
    return [
        click.option("--limit", "-n", type=WholeNumber(min_limit, 1000), metavar="N", help="At most this many hits."),
        click.option(
            "--min-score", type=RealNumber(0, 1), metavar="NUMBER", help="Leave out hits below this relevance."
        ),
        click.option(
            "--at", metavar="TIME", help='From when "last March" in the question is meant: ISO 8601 or 7d. UTC.'
        ),
        AS_OF_OPTION,
    ]


_SHARE_RANGE = RealNumber(0, 1)


def field_options(function: Callable[..., None]) -> Callable[..., None]:
    """Give a command an option for each field; it gets those that were given as one `fields`."""

    @wraps(function)
    def with_fields(*args: Any, **kwargs: Any) -> None:
        fields = {name: kwargs.pop(option) for option, name in _FIELD_NAMES.items()}
        fields["metadata"] = dict(_parse_pair(text) for text in fields["metadata"])
        fields = {name: value for name, value in fields.items() if value is not None and value not in ((), {})}
        function(*args, fields=fields, **kwargs)

    for option in reversed(_FIELD_OPTIONS):
        with_fields = option(with_fields)
    return with_fields


_FIELD_NAMES = {
    "category": "category",
    "type": "type",
    "key": "key",
    "value": "value",
    "importance": "importance",
    "confidence": "confidence",
    "tag": "tags",
    "meta": "metadata",
    "source": "source",
    "occurred": "occurred_at",
    "expires": "expires_at",
}

_FIELD_OPTIONS: list[Callable[[Callable[..., None]], Callable[..., None]]] = [
    click.option("--category", **enum_choice(Category), help=f"What it says about the user: {', '.join(Category)}."),
    click.option("--type", **enum_choice(MemoryType), help=f"What kind of knowledge it is: {', '.join(MemoryType)}."),
    click.option("--key", metavar="NAME", help="Makes it a fact that has one value at a time."),
    click.option("--value", metavar="TEXT", help="The value of the key."),
    click.option("--importance", type=_SHARE_RANGE, metavar="NUMBER", help="How much it matters."),
    click.option("--confidence", type=_SHARE_RANGE, metavar="NUMBER", help="How sure it is."),
    click.option("--tag", multiple=True, metavar="TAG", help="A tag; may be given several times."),
    click.option("--meta", multiple=True, metavar="NAME=VALUE", help="Anything of yours; several times."),
    click.option("--source", metavar="TEXT", help="Where it comes from."),
    click.option("--occurred", metavar="TIME", help="When it happened, ISO 8601; UTC unless it says otherwise."),
    click.option("--expires", metavar="TIME", help="When it is no longer to be found."),
]


def _parse_pair(text: str) -> tuple[str, Any]:
    name, separator, value = text.partition("=")
    if not separator or not name.strip():
        raise click.BadParameter(f"{text!r} is not NAME=VALUE.", param_hint="--meta")
    return name.strip(), parse_plain_value(value.strip())
