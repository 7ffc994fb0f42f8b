"""recollect upkeep"""

from __future__ import annotations

import click

from recollect.cli.command import Command
from recollect.cli.given import Given, pass_given
from recollect.cli.records import counted
from recollect.cli.terminal import bold, dim, print_json, say
from recollect.upkeep.report import Chore, Report, read_chores

_USUAL = (Chore.EXPIRE, Chore.QUOTA, Chore.PRUNE, Chore.CONSOLIDATE)
_SHOWN = 20


@click.command(
    cls=Command,
    whose="user project",
    examples=(
        "recollect upkeep --user alex --dry-run",
        "recollect upkeep consolidate --user alex",
        "recollect upkeep reflect --user alex",
    ),
)
@click.argument("chores", metavar="[CHORE]...", nargs=-1)
@click.option("--dry-run", is_flag=True, help="Only say what it would do.")
@pass_given
def upkeep(given: Given, chores: tuple[str, ...], dry_run: bool) -> None:
    """Put a user's memories in order now.

    CHORE is expire, quota, prune, consolidate or reflect; without one, all but reflect are done. What a chore does is
    one change in history, and undo takes it back whole.
    """
    wanted = read_chores(chores) if chores else list(_USUAL)
    with given.open() as memory:
        reports = memory.upkeep(wanted, user_id=given.user_id, project_id=given.project, dry_run=dry_run, by="cli")
    if given.json:
        print_json({"results": [report.to_dict() for report in reports]})
        return
    for report in reports:
        _tell(report)


def _tell(report: Report) -> None:
    would = "would change " if report.dry_run else "changed "
    say(bold(str(report.chore)), f": {would}{counted(len(report.steps), 'memory', 'memories')}")
    for step in report.steps[:_SHOWN]:
        say(f"  {step.verb}  {step.content[:200]}", dim(f"  {step.why}") if step.why else "")
    if len(report.steps) > _SHOWN:
        say(dim(f"  and {len(report.steps) - _SHOWN:,} more"))
    for why in report.left[:_SHOWN]:
        say(dim(f"  left alone: {why}"))
    for id in report.stale:
        say(dim(f"  stale: {id} rests on what is no longer remembered"))
    if report.more:
        say(dim("  there is more to do; run it again"))
