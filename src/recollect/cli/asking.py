"""The options of the commands that ask: how much, how good, from when."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import wraps
from typing import Any, TypedDict

import click

from recollect.cli.filters import AGO, as_time, filter_options
from recollect.cli.numbers import Number, WholeNumber
from recollect.model.query import Filter


class Asked(TypedDict):
    """What those options were given as, under the names of the Python API."""

    limit: int | None
    min_score: float | None
    filters: Filter
    at: datetime | str | None
    as_of: datetime | str | None


AS_OF = click.option(
    "--as-of", metavar="TIME", help="Answer from what held then, as it was: 2026-03-15, or 24h, 7d, 2w ago."
)


def asking_options(*, least: int) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command these options and the filters; it gets them as one `asked`."""

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        @wraps(function)
        def asking(
            *args: Any,
            limit: int | None,
            min_score: float | None,
            at: str | None,
            as_of: str | None,
            filter: Filter,
            **kwargs: Any,
        ) -> None:
            asked = Asked(
                limit=limit,
                min_score=min_score,
                filters=filter,
                at=moment(at, name="--at"),
                as_of=moment(as_of, name="--as-of"),
            )
            function(*args, asked=asked, **kwargs)

        decorated = filter_options(asking)
        for option in reversed(_options(least)):
            decorated = option(decorated)
        return decorated

    return decorate


def moment(text: str | None, *, name: str) -> datetime | str | None:
    """A moment as the API takes it: so long ago, or the text, whose own zone says where days begin."""
    if text is None:
        return None
    found: datetime = as_time(text, name=name)
    return found if AGO.fullmatch(text.strip()) else text.strip()


def _options(least: int) -> list[Callable[[Callable[..., None]], Callable[..., None]]]:
    return [
        click.option("--limit", "-n", type=WholeNumber(least, 1000), metavar="N", help="At most this many hits."),
        click.option("--min-score", type=Number(0, 1), metavar="NUMBER", help="Leave out hits below this relevance."),
        click.option(
            "--at", metavar="TIME", help='From when "last March" in the question is meant: ISO 8601 or 7d. UTC.'
        ),
        AS_OF,
    ]
