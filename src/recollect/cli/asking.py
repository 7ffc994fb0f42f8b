"""The options of the commands that ask: how much, how good, from when."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import wraps
from typing import Any, TypedDict

import click

from recollect.cli.filters import AGO_PATTERN, filter_options, parse_cli_time
from recollect.cli.numbers import RealNumber, WholeNumber
from recollect.model.query import Filter


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
            function(*args, asked=options, **kwargs)

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
