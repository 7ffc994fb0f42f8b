"""recollect upkeep"""

from __future__ import annotations

import click

from recollect.cli.command import Command
from recollect.cli.given import CliContext, pass_cli
from recollect.cli.records import pluralize
from recollect.cli.terminal import bold, dim, print_json, print_line
from recollect.upkeep.report import MaintenanceReport, MaintenanceTask, parse_tasks

_DEFAULT_TASKS = (MaintenanceTask.EXPIRE, MaintenanceTask.QUOTA, MaintenanceTask.PRUNE, MaintenanceTask.CONSOLIDATE)
_MAX_STEPS_SHOWN = 20


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
@pass_cli
def upkeep(cli: CliContext, chores: tuple[str, ...], dry_run: bool) -> None:
    """Put a user's memories in order now.

    CHORE is expire, quota, prune, consolidate or reflect; without one, all but reflect are done. What a chore does is
    one change in history, and undo takes it back whole.
    """
    tasks = parse_tasks(chores) if chores else list(_DEFAULT_TASKS)
    with cli.open() as memory:
        reports = memory.upkeep(tasks, user_id=cli.user_id, project_id=cli.project, dry_run=dry_run, by="cli")
    if cli.json:
        print_json({"results": [report.to_dict() for report in reports]})
        return
    for report in reports:
        _print_task_report(report)


def _print_task_report(report: MaintenanceReport) -> None:
    verb = "would change " if report.dry_run else "changed "
    print_line(bold(str(report.chore)), f": {verb}{pluralize(len(report.steps), 'memory', 'memories')}")
    for step in report.steps[:_MAX_STEPS_SHOWN]:
        print_line(f"  {step.verb}  {step.content[:200]}", dim(f"  {step.why}") if step.why else "")
    if len(report.steps) > _MAX_STEPS_SHOWN:
        print_line(dim(f"  and {len(report.steps) - _MAX_STEPS_SHOWN:,} more"))
    for why in report.left[:_MAX_STEPS_SHOWN]:
        print_line(dim(f"  left alone: {why}"))
    for id in report.stale:
        print_line(dim(f"  stale: {id} rests on what is no longer remembered"))
    if report.more:
        print_line(dim("  there is more to do; run it again"))
