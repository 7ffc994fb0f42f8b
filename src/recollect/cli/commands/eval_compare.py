"""recollect eval compare"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from recollect.cli.command import Command
from recollect.cli.given import CliContext, pass_cli
from recollect.cli.records import pluralize
from recollect.cli.table import Column, print_table
from recollect.cli.terminal import bold, dim, print_json, print_line

_COMPARISON_COLUMNS = (
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
@pass_cli
def compare(cli: CliContext, a: Path, b: Path) -> None:
    """Tell whether one measurement is better than another.

    A and B are files that recollect eval wrote with --json FILE, of the same conversations. Each question is held
    against itself; the interval is that of a bootstrap over the questions. Where it holds 0 the verdict is unclear,
    and where no question came out otherwise it is the same.
    """
    from recollect.evaluation.compare import compare as differences

    comparison = differences(a, b)
    if cli.json:
        print_json(comparison)
        return
    for name in ("a", "b"):
        print_line(
            bold(name.upper()), "  ", comparison[name]["file"], dim(f"  {_differing_settings(comparison, name)}")
        )
    unpaired = comparison["only_in_a"] + comparison["only_in_b"]
    missing = f"; {pluralize(unpaired, 'question')} that only one of them has are left out" if unpaired else ""
    print_line(dim(f"{pluralize(comparison['n'], 'question')} of {comparison['benchmark']}{missing}"))
    print_line()
    print_table(
        [Column("MARK"), *_COMPARISON_COLUMNS],
        [(row["mark"], *_comparison_cells(row)) for row in comparison["marks"]],
    )
    print_line()
    print_line(dim(f"{comparison['categories'][0]['mark']} by category:"))
    rows = [(row["category"], *_comparison_cells(row)) for row in comparison["categories"]]
    print_table([Column("CATEGORY", flexible=True), *_COMPARISON_COLUMNS], rows)


def _differing_settings(comparison: Mapping[str, Any], name: str) -> str:
    """The settings in which this one differs from the other."""
    own, other = comparison[name]["settings"], comparison["b" if name == "a" else "a"]["settings"]
    return ", ".join(f"{key} {value}" for key, value in own.items() if other.get(key) != value)


def _comparison_cells(row: Mapping[str, Any]) -> tuple[str, ...]:
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
