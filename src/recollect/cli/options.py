"""Options and arguments that several commands share, and the parsing of their values."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from enum import StrEnum
from functools import reduce, wraps
from pathlib import Path
from typing import Any, TextIO, TypeAlias, TypedDict

import click

from recollect.cli.context import usage_error
from recollect.errors import InvalidFilter, InvalidInput, InvalidText
from recollect.model.memory import Category, MemoryType, Status, Trust
from recollect.model.query import EVERYTHING, FIELDS, And, Filter, Kind, Not, Op, any_of, unknown_field, where
from recollect.model.scope import Level
from recollect.model.text import MAX_TEXT_BYTES
from recollect.model.times import as_utc, now

Decorator: TypeAlias = Callable[[Callable[..., Any]], Callable[..., Any]]


class WholeNumber(click.IntRange):
    """An integer, called a whole number in errors."""

    name = "whole number"


class RealNumber(click.FloatRange):
    """A float, called a number in errors."""

    name = "number"


def enum_choice(kind: type[StrEnum]) -> dict[str, Any]:
    """Return the attributes of an option that takes a value of an enumeration."""
    name = kind.__name__.removeprefix("Memory").upper()
    return {"type": click.Choice([each.value for each in kind]), "metavar": name}


def limit_option(help: str = "Maximum number of rows.") -> Decorator:
    """Return --limit, or -n, of a list."""
    return click.option(
        "--limit", "-n", type=WholeNumber(1, 1000), default=20, metavar="N", show_default=True, help=help
    )


AS_OF_OPTION = click.option("--as-of", metavar="TIME", help="The state at this time: 2026-03-15, or 24h, 7d, 2w ago.")
WHY_OPTION = click.option("--why", default="", metavar="TEXT", help="The reason, stored in history.")
YES_OPTION = click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
VERSION_OPTION = click.option(
    "--expect-version", type=int, metavar="N", help="Fail if the memory is not at version N any more."
)


def apply_options(function: Callable[..., Any], options: Sequence[Decorator]) -> Callable[..., Any]:
    """Add options to a command, in their order."""
    return reduce(lambda decorated, option: option(decorated), reversed(options), function)


def read_text_argument(words: Sequence[str], *, name: str) -> str:
    """Return the words joined by spaces; without any, or for "-", standard input without its last newline."""
    if words and tuple(words) != ("-",):
        return " ".join(words)
    if sys.stdin is None or (not words and sys.stdin.isatty()):
        raise click.UsageError(f"Give the {name} as arguments, or pipe it in.")
    # The input may be endless: read no more than is needed to reject it.
    data = sys.stdin.buffer.read(MAX_TEXT_BYTES + 3)
    if len(data.rstrip(b"\r\n")) > MAX_TEXT_BYTES:
        raise InvalidText(f"{name} is longer than {MAX_TEXT_BYTES:,} bytes, which is the limit: split it into parts")
    try:
        return data.decode("utf-8").removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError as error:
        message = f"standard input is not UTF-8 text: byte {error.start} is {data[error.start]:#04x}"
        raise InvalidText(message) from None


def read_file_argument(file: str) -> bytes:
    """Return the content of a file; "-" is standard input."""
    if file == "-" and (sys.stdin is None or sys.stdin.isatty()):
        raise usage_error("Name a file, or pipe the content in.")
    try:
        return sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise click.FileError(str(Path(file).absolute()), error.strerror or "") from None


@contextmanager
def open_new_file(path: Path, *, force: bool) -> Iterator[TextIO]:
    """Open a file that only its owner may read, and that appears only if it is written completely."""
    if path.exists() and not path.is_file():
        with path.open("w", encoding="utf-8") as out:
            yield out
        return
    if path.exists() and not force:
        raise usage_error(f"{path} exists; --force replaces it.")
    if not path.parent.is_dir():
        raise usage_error(f"The folder {path.parent.absolute()} does not exist; create it, or name another file.")
    temporary = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as out:
            yield out
            out.flush()
            os.fsync(out.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


_SPAN = re.compile(r"(\d{1,6})\s*([hdw])")
_SPAN_UNITS = {"h": "hours", "d": "days", "w": "weeks"}
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")


def parse_span(text: str) -> timedelta | None:
    """Return a time span such as 24h, 7d or 2w; None if the text is none."""
    match = _SPAN.fullmatch(text.strip())
    return timedelta(**{_SPAN_UNITS[match[2]]: int(match[1])}) if match else None


def parse_cli_time(text: str, *, name: str) -> datetime:
    """Return a time: ISO 8601, or how long ago, such as 24h, 7d or 2w."""
    try:
        span = parse_span(text)
        return as_utc(text, name=name) if span is None else now() - span
    except OverflowError:
        raise InvalidInput(f"{name}: {text} ago is before the calendar begins") from None
    except InvalidInput as error:
        raise InvalidInput(f"{error}, or how long ago: 24h, 7d or 2w") from None


def parse_moment(text: str | None, *, name: str) -> datetime | str | None:
    """Return a time for the Python API; an ISO time stays text, since its zone decides where days begin."""
    if text is None:
        return None
    parsed = parse_cli_time(text, name=name)
    return text.strip() if parse_span(text) is None else parsed


_OPERATORS = {
    ">=": Op.GTE, "<=": Op.LTE, "!=": Op.NE, "=": Op.EQ, ">": Op.GT, "<": Op.LT, "~": Op.CONTAINS, "in": Op.IN,
}  # fmt: skip
_COMPARISON = re.compile(r"\s*([\w.\- ]*?[\w\-])\s*(>=|<=|!=|==|=|>|<|~|(?<=\s)in(?=\s))\s*(.*?)\s*", re.DOTALL)
_ENUM_FIELDS: Mapping[str, type[StrEnum]] = {
    "category": Category, "type": MemoryType, "status": Status, "trust": Trust, "level": Level,
}  # fmt: skip


def parse_where(text: str) -> Filter:
    """Parse a comparison such as importance>=0.5, tags~travel or "category in fact,event"."""
    match = _COMPARISON.fullmatch(text)
    if match is None:
        raise InvalidFilter(
            f"cannot read --where {text!r}; write it as importance>=0.5, category=fact, tags~travel "
            f'or "category in fact,event"; the operators are {" ".join(_OPERATORS)}'
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
    if kind is Kind.TIME:
        return parse_cli_time(text, name=field)
    if field in _ENUM_FIELDS and op is not Op.CONTAINS and text not in tuple(_ENUM_FIELDS[field]):
        raise InvalidFilter(f"unknown {field} {text!r}; it is one of {', '.join(_ENUM_FIELDS[field])}")
    if kind not in (Kind.NUMBER, Kind.JSON) or (kind is Kind.JSON and op is Op.CONTAINS):
        return text
    value = _parse_plain_value(text)
    if kind is Kind.NUMBER and (isinstance(value, bool) or not isinstance(value, (int, float))):
        raise InvalidFilter(f"{field} is compared with a number, not {text!r}")
    return value


def _parse_plain_value(text: str) -> Any:
    """Return a number, true, false or quoted text of JSON; anything else as text."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value if isinstance(value, (str, bool, int, float)) else text


_FILTER_OPTIONS: Sequence[Decorator] = (
    click.option(
        "--where",
        "wheres",
        multiple=True,
        metavar="TEST",
        help="Only where this is true: importance>=0.5, category=fact, tags~travel, metadata.trip=hawaii, "
        '"category in fact,event". Several are combined with AND.',
    ),
    click.option("--category", multiple=True, **enum_choice(Category), help="Only this category, or these."),
    click.option("--type", multiple=True, **enum_choice(MemoryType), help="Only this type, or these."),
    click.option("--tag", multiple=True, metavar="TAG", help="Only with this tag; with all, if several are given."),
    click.option("--since", metavar="TIME", help="Only from this time on: 2026-03-15, or 24h, 7d, 2w ago. UTC."),
    click.option("--until", metavar="TIME", help="Only up to this time; a day is included."),
)


def filter_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add --where and its shortcuts to a command, which receives them as one `filter`."""

    @wraps(function)
    def filtered(*args: Any, since: str | None, until: str | None, **kwargs: Any) -> None:
        parts = [parse_where(text) for text in kwargs.pop("wheres")]
        parts += [any_of(name, values) for name in ("category", "type") if (values := kwargs.pop(name))]
        parts += [where("tags", Op.CONTAINS, tag) for tag in kwargs.pop("tag")]
        if since is not None:
            parts.append(where("created_at", Op.GTE, parse_cli_time(since, name="--since")))
        if until is not None:
            end = parse_cli_time(until, name="--until")
            whole_day = timedelta(days=1) if _DAY.fullmatch(until.strip()) else timedelta()
            parts.append(where("created_at", Op.LT, end + whole_day))
        combined = And(tuple(parts)) if len(parts) > 1 else parts[0] if parts else EVERYTHING
        function(*args, filter=combined, **kwargs)

    return apply_options(filtered, _FILTER_OPTIONS)


class SearchOptions(TypedDict):
    """The options of a search as arguments of the Python API."""

    limit: int | None
    min_score: float | None
    filters: Filter
    at: datetime | str | None
    as_of: datetime | str | None


def search_options(*, min_limit: int) -> Decorator:
    """Add the options of a search and the filters to a command, which receives them as one `options`."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def with_options(*args: Any, at: str | None, as_of: str | None, filter: Filter, **kwargs: Any) -> None:
            options = SearchOptions(
                limit=kwargs.pop("limit"),
                min_score=kwargs.pop("min_score"),
                filters=filter,
                at=parse_moment(at, name="--at"),
                as_of=parse_moment(as_of, name="--as-of"),
            )
            function(*args, options=options, **kwargs)

        limit = WholeNumber(min_limit, 1000)
        added = (
            click.option("--limit", "-n", type=limit, metavar="N", help="Maximum number of hits."),
            click.option("--min-score", type=RealNumber(0, 1), metavar="NUMBER", help="Minimum relevance of a hit."),
            click.option("--at", metavar="TIME", help='Reference time for "last March": ISO 8601 or 7d. UTC.'),
            AS_OF_OPTION,
        )
        return apply_options(filter_options(with_options), added)

    return decorate


_FIELD_OPTIONS: Mapping[str, Decorator] = {
    "category": click.option(
        "--category", **enum_choice(Category), help=f"What it says about the user: {', '.join(Category)}."
    ),
    "type": click.option("--type", **enum_choice(MemoryType), help=f"Kind of knowledge: {', '.join(MemoryType)}."),
    "key": click.option("--key", metavar="NAME", help="Makes it a fact with one value at a time."),
    "value": click.option("--value", metavar="TEXT", help="The value of the key."),
    "importance": click.option("--importance", type=RealNumber(0, 1), metavar="NUMBER", help="From 0 to 1."),
    "confidence": click.option("--confidence", type=RealNumber(0, 1), metavar="NUMBER", help="From 0 to 1."),
    "tags": click.option("--tag", "tags", multiple=True, metavar="TAG", help="A tag; can be repeated."),
    "metadata": click.option(
        "--meta", "metadata", multiple=True, metavar="NAME=VALUE", help="Custom data; repeatable."
    ),
    "source": click.option("--source", metavar="TEXT", help="Where it comes from."),
    "occurred_at": click.option("--occurred", "occurred_at", metavar="TIME", help="When it happened, ISO 8601; UTC."),
    "expires_at": click.option("--expires", "expires_at", metavar="TIME", help="When it expires, ISO 8601; UTC."),
}


def field_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add an option for each field of a memory to a command, which receives the given ones as one `fields`."""

    @wraps(function)
    def with_fields(*args: Any, **kwargs: Any) -> None:
        fields = {name: kwargs.pop(name) for name in _FIELD_OPTIONS}
        fields["metadata"] = dict(_parse_pair(text) for text in fields["metadata"])
        fields = {name: value for name, value in fields.items() if value is not None and value not in ((), {})}
        function(*args, fields=fields, **kwargs)

    return apply_options(with_fields, tuple(_FIELD_OPTIONS.values()))


def _parse_pair(text: str) -> tuple[str, Any]:
    name, separator, value = text.partition("=")
    if not separator or not name.strip():
        raise click.BadParameter(f"{text!r} is not NAME=VALUE.", param_hint="--meta")
    return name.strip(), _parse_plain_value(value.strip())
