"""recollect eval"""

from __future__ import annotations

import sys
from importlib import import_module
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import click

import recollect
from recollect.cli.context import CliContext, ExitCode, command
from recollect.cli.output import (
    StyledText,
    bold,
    clean,
    dim,
    pluralize,
    print_line,
    terminal_width,
    truncate,
)

if TYPE_CHECKING:
    from recollect.cli.recipes import RecipeCheck, RecipeReport

PATH = click.Path(path_type=Path)


class _InOrder(click.Group):
    """Lists its commands in the order of their definition."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


@click.group(cls=_InOrder)
def eval_() -> None:
    """Measure retrieval quality on your data.

    Your memories are neither read nor changed: each measurement uses a temporary ledger. It uses the settings in
    force, such as the embedder, so that two setups can be compared.
    """


@command(
    "recollect eval recipe recipe.yaml",
    "recollect eval recipe recipe.yaml --junit recipes.xml",
    scope="",
    group=eval_,
)
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=PATH)
@click.option("--junit", type=PATH, metavar="FILE", help="Also write the results as JUnit XML, for CI.")
def recipe(cli: CliContext, files: tuple[Path, ...], junit: Path | None) -> None:
    """Check which memories are recalled and which are not.

    Each FILE is a YAML recipe: steps that store, remember, correct and forget, and questions with expectations of
    the recalled memories. It runs on an empty memory. The exit code is 1 if an expectation fails.
    """
    import asyncio

    from recollect.cli.recipes import junit_xml, read_recipe, run_recipes

    settings = cli.settings()
    # An error in the last recipe is reported before the first one runs.
    recipes = [read_recipe(file) for file in files]
    on_report = (lambda report: None) if cli.json else _print_recipe_report
    reports = asyncio.run(run_recipes(recipes, settings, on_report=on_report))
    if junit is not None:
        junit.write_text(junit_xml(reports), encoding="utf-8")
    failed, total = sum(each.failed for each in reports), sum(len(each.checks) for each in reports)
    document = {"ok": not failed, "recipes": [each.to_dict() for each in reports]}
    if failed:
        count, verb = bold(f"{failed:,} of {pluralize(total, 'expectation')}"), "does" if failed == 1 else "do"
        cli.reply(document, count, f" {verb} not hold.")
        click.get_current_context().exit(ExitCode.UNEXPECTED)
    cli.reply(document, f"All {total:,} expectations hold." if total > 1 else "The one expectation holds.")


_MAX_RECALLED = 5
_INDENT = " " * 8


def _print_recipe_report(report: RecipeReport) -> None:
    print_line(bold(report.recipe.name), dim(f"  {report.recipe.file}"))
    for _, group in groupby(report.checks, key=lambda check: check.step):
        checks = list(group)
        for check in checks:
            mark = StyledText("ok  ", "green") if check.passed else StyledText("fail", "red")
            print_line("  ", mark, f"  step {check.step}: {check}")
            if not check.passed:
                print_line(_INDENT, check.describe_failure())
        if not all(check.passed for check in checks):
            _print_recalled(checks[0])
    print_line()


def _print_recalled(check: RecipeCheck) -> None:
    """Print the first recalled memories."""
    for place, each in enumerate(check.recalled[:_MAX_RECALLED], 1):
        line = f"{_INDENT}{place}. {each.score:.2f}  {clean(each.memory)}"
        print_line(dim(truncate(line, terminal_width())))
    for note in check.notes:
        print_line(_INDENT, dim(note))
    if len(check.recalled) > _MAX_RECALLED:
        print_line(_INDENT, dim(f"and {len(check.recalled) - _MAX_RECALLED} more"))


def _add_benchmarks() -> None:
    """Import the other commands from the folder evals, which is in the repository but not in the package."""
    checkout = Path(recollect.__file__).parents[2]
    if (checkout / "evals" / "commands.py").exists():
        if str(checkout) not in sys.path:
            sys.path.append(str(checkout))
        import_module("evals.commands")


_add_benchmarks()
