"""Numbers between two ends, refused in plain words, and the option that takes how many."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

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
