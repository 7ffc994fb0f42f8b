"""recollect eval recipe"""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from recollect.cli.command import Command
from recollect.cli.exit_codes import ExitCode
from recollect.cli.given import CliContext, configure_logging, pass_cli
from recollect.cli.records import pluralize
from recollect.cli.table import truncate
from recollect.cli.terminal import StyledText, bold, clean, dim, print_json, print_line, width

if TYPE_CHECKING:
    from recollect.evaluation.recipe_run import RecipeCheck, RecipeReport

_MAX_RECALLED = 5
_INDENT = " " * 8


@click.command(
    cls=Command,
    whose="",
    examples=("recollect eval recipe recipe.yaml", "recollect eval recipe recipe.yaml --junit recipes.xml"),
)
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--junit", type=click.Path(path_type=Path), metavar="FILE", help="Also write the outcome as JUnit XML, for CI."
)
@pass_cli
def recipe(cli: CliContext, files: tuple[Path, ...], junit: Path | None) -> None:
    """Check what must and what must not be recalled.

    Each FILE is a YAML recipe: steps that store, remember, correct and forget, and questions with what must and must
    not come back. It runs on an empty memory of its own. The exit code is 1 if an expectation does not hold.
    """
    import asyncio

    from recollect.evaluation.files import check_folder
    from recollect.evaluation.junit import write_junit
    from recollect.evaluation.recipe_file import read_recipe
    from recollect.evaluation.recipe_run import run_recipes

    configure_logging(verbose=cli.verbose)
    settings = cli.load().settings
    # All are read before the first is run: a mistake in the last should not cost the time of the others.
    recipes = [read_recipe(file) for file in files]
    if junit is not None:
        check_folder(junit)
    reports = asyncio.run(
        run_recipes(recipes, settings, on_report=(lambda report: None) if cli.json else _print_recipe_report)
    )
    if junit is not None:
        write_junit(junit, reports)
    failed, total = sum(each.failed for each in reports), sum(len(each.checks) for each in reports)
    if cli.json:
        print_json({"ok": not failed, "recipes": [_report_dict(each) for each in reports]})
    elif failed:
        print_line(
            bold(f"{failed:,} of {pluralize(total, 'expectation')}"), f" {'does' if failed == 1 else 'do'} not hold."
        )
    else:
        print_line(f"All {total:,} expectations hold." if total > 1 else "The one expectation holds.")
    if failed:
        click.get_current_context().exit(ExitCode.UNEXPECTED)


def _print_recipe_report(report: RecipeReport) -> None:
    from recollect.evaluation.junit import complaint

    print_line(bold(report.recipe.name), dim(f"  {report.recipe.file}"))
    for _, group in groupby(report.checks, key=lambda check: check.step):
        checks = list(group)
        for check in checks:
            mark = StyledText("ok  ", "green") if check.passed else StyledText("fail", "red")
            print_line("  ", mark, f"  step {check.step}: {check}")
            if not check.passed:
                print_line(_INDENT, complaint(check))
        if not all(check.passed for check in checks):
            _print_recalled(checks[0])
    print_line()


def _print_recalled(check: RecipeCheck) -> None:
    """What came back instead, as far as it can be taken in at a glance."""
    columns = width()
    for place, each in enumerate(check.recalled[:_MAX_RECALLED], 1):
        line = f"{place}. {each.score:.2f}  {clean(each.text)}"
        print_line(_INDENT, dim(truncate(line, columns - len(_INDENT)) if columns else line))
    for note in check.notes:
        print_line(_INDENT, dim(note))
    if len(check.recalled) > _MAX_RECALLED:
        print_line(_INDENT, dim(f"and {len(check.recalled) - _MAX_RECALLED} more"))


def _report_dict(report: RecipeReport) -> dict[str, Any]:
    return {
        "file": str(report.recipe.file),
        "name": report.recipe.name,
        "failed": report.failed,
        "checks": [
            {
                "step": check.step,
                "question": check.question,
                "expected": "must" if check.expected.must else "must_not",
                "words": check.expected.words or None,
                "memory": check.expected.memory or None,
                "held": check.passed,
                "at": check.at or None,
                "notes": list(check.notes),
                "recalled": [
                    {"id": each.id, "memory": each.text, "score": round(each.score, 6)} for each in check.recalled
                ],
            }
            for check in report.checks
        ],
    }
