"""The fields of a memory as options of add and update."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import click

from recollect.cli.filters import enum_choice, parse_plain_value
from recollect.cli.numbers import RealNumber
from recollect.model.memory import Category, MemoryType

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
