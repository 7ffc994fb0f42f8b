"""Numbers between two ends, refused in plain words."""

from __future__ import annotations

import click


class WholeNumber(click.IntRange):
    """An integer; what is none "is not a valid whole number"."""

    name = "whole number"


class Number(click.FloatRange):
    """A number; what is none "is not a valid number"."""

    name = "number"
