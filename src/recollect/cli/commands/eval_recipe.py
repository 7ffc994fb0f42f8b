"""recollect eval recipe"""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from recollect.cli.command import Command
from recollect.cli.exit_codes import ExitCode
from recollect.cli.given import Given, listen_to_log, pass_given
from recollect.cli.records import counted
from recollect.cli.table import cut
from recollect.cli.terminal import Piece, bold, clean, dim, print_json, say, width

if TYPE_CHECKING:
    from recollect.evaluation.recipe_run import Checked, Report

_SHOWN = 5
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
@pass_given
def recipe(given: Given, files: tuple[Path, ...], junit: Path | None) -> None:
    """Check what must and what must not be recalled.

    Each FILE is a YAML recipe: steps that store, remember, correct and forget, and questions with what must and must
    not come back. It runs on an empty memory of its own. The exit code is 1 if an expectation does not hold.
    """
    import asyncio

    from recollect.evaluation.files import check_folder
    from recollect.evaluation.junit import write_junit
    from recollect.evaluation.recipe_file import read_recipe
    from recollect.evaluation.recipe_run import run_recipes

    listen_to_log(verbose=given.verbose)
    settings = given.load().settings
    # All are read before the first is run: a mistake in the last should not cost the time of the others.
    recipes = [read_recipe(file) for file in files]
    if junit is not None:
        check_folder(junit)
    reports = asyncio.run(run_recipes(recipes, settings, tell=(lambda report: None) if given.json else _say))
    if junit is not None:
        write_junit(junit, reports)
    failed, total = sum(each.failed for each in reports), sum(len(each.checks) for each in reports)
    if given.json:
        print_json({"ok": not failed, "recipes": [_plain(each) for each in reports]})
    elif failed:
        say(bold(f"{failed:,} of {counted(total, 'expectation')}"), f" {'does' if failed == 1 else 'do'} not hold.")
    else:
        say(f"All {total:,} expectations hold." if total > 1 else "The one expectation holds.")
    if failed:
        click.get_current_context().exit(ExitCode.UNEXPECTED)


def _say(report: Report) -> None:
    from recollect.evaluation.junit import complaint

    say(bold(report.recipe.name), dim(f"  {report.recipe.file}"))
    for _, group in groupby(report.checks, key=lambda check: check.step):
        checks = list(group)
        for check in checks:
            mark = Piece("ok  ", "green") if check.held else Piece("fail", "red")
            say("  ", mark, f"  step {check.step}: {check}")
            if not check.held:
                say(_INDENT, complaint(check))
        if not all(check.held for check in checks):
            _say_recalled(checks[0])
    say()


def _say_recalled(check: Checked) -> None:
    """What came back instead, as far as it can be taken in at a glance."""
    room = width()
    for place, each in enumerate(check.recalled[:_SHOWN], 1):
        line = f"{place}. {each.score:.2f}  {clean(each.text)}"
        say(_INDENT, dim(cut(line, room - len(_INDENT)) if room else line))
    for note in check.notes:
        say(_INDENT, dim(note))
    if len(check.recalled) > _SHOWN:
        say(_INDENT, dim(f"and {len(check.recalled) - _SHOWN} more"))


def _plain(report: Report) -> dict[str, Any]:
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
                "held": check.held,
                "at": check.at or None,
                "notes": list(check.notes),
                "recalled": [
                    {"id": each.id, "memory": each.text, "score": round(each.score, 6)} for each in check.recalled
                ],
            }
            for check in report.checks
        ],
    }
