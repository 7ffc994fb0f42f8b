"""recollect eval compare"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from recollect.cli.command import Command
from recollect.cli.given import Given, pass_given
from recollect.cli.records import counted
from recollect.cli.table import Column, print_table
from recollect.cli.terminal import bold, dim, print_json, say

_NUMBERS = (
    Column("A", right=True),
    Column("B", right=True),
    Column("B - A", right=True, style="bold"),
    Column("95 % INTERVAL", right=True),
    Column("N", right=True, optional=True),
    Column("VERDICT"),
)


@click.command(cls=Command, whose="", examples=("recollect eval compare before.json after.json",))
@click.argument("a", type=click.Path(path_type=Path))
@click.argument("b", type=click.Path(path_type=Path))
@pass_given
def compare(given: Given, a: Path, b: Path) -> None:
    """Tell whether one measurement is better than another.

    A and B are files that recollect eval wrote with --json FILE, of the same conversations. Each question is held
    against itself; the interval is that of a bootstrap over the questions. Where it holds 0 the verdict is unclear,
    and where no question came out otherwise it is the same.
    """
    from recollect.evaluation.compare import compare as differences

    told = differences(a, b)
    if given.json:
        print_json(told)
        return
    for name in ("a", "b"):
        say(bold(name.upper()), "  ", told[name]["file"], dim(f"  {_apart(told, name)}"))
    left_out = told["only_in_a"] + told["only_in_b"]
    missing = f"; {counted(left_out, 'question')} that only one of them has are left out" if left_out else ""
    say(dim(f"{counted(told['n'], 'question')} of {told['benchmark']}{missing}"))
    say()
    print_table([Column("MARK"), *_NUMBERS], [(row["mark"], *_cells(row)) for row in told["marks"]])
    say()
    say(dim(f"{told['categories'][0]['mark']} by category:"))
    rows = [(row["category"], *_cells(row)) for row in told["categories"]]
    print_table([Column("CATEGORY", flexible=True), *_NUMBERS], rows)


def _apart(told: Mapping[str, Any], name: str) -> str:
    """The settings in which this one differs from the other."""
    own, other = told[name]["settings"], told["b" if name == "a" else "a"]["settings"]
    return ", ".join(f"{key} {value}" for key, value in own.items() if other.get(key) != value)


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        f"{row['a']:.3f}",
        f"{row['b']:.3f}",
        f"{row['difference']:+.3f}",
        f"{row['low']:+.3f} to {row['high']:+.3f}",
        f"{row['n']:,}",
        _verdict(row),
    )


def _verdict(row: Mapping[str, Any]) -> str:
    if row["low"] == row["high"] == 0:
        # Not one question came out otherwise.
        return "the same"
    return "better" if row["low"] > 0 else "worse" if row["high"] < 0 else "unclear"
