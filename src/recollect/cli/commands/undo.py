"""recollect undo"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from recollect.cli.command import Command
from recollect.cli.given import CliContext, pass_cli
from recollect.cli.records import format_short_time
from recollect.cli.terminal import bold, dim, print_json, print_line

if TYPE_CHECKING:
    from recollect.model.change import Outcome
    from recollect.sync import Memory


@click.command(
    cls=Command,
    examples=("recollect undo --user alex", "recollect undo 12 --user alex", "recollect undo --any --user alex"),
)
@click.argument("change_id", metavar="[CHANGE]", type=int, required=False)
@click.option("--any", "anyones", is_flag=True, help="The last change whoever made it: learning and upkeep too.")
@click.option("--why", default="", metavar="TEXT", help="The reason, kept in history.")
@pass_cli
def undo(cli: CliContext, change_id: int | None, anyones: bool, why: str) -> None:
    """Take back the last thing that someone did or said, or a change by its number.

    What was said goes with what was learned from it. CHANGE is the number that history tells. An undo can be undone
    by its own number.
    """
    if anyones and change_id is not None:
        raise click.UsageError("Give either a number or --any.", click.get_current_context())
    with cli.open() as memory:
        outcomes = memory.undo(change_id, user_id=cli.user_id, anyones=anyones, by="cli", why=why)
        description = "" if cli.json else _describe_undone(memory, outcomes, cli.user_id)
    if cli.json:
        print_json({"results": [outcome.to_dict() for outcome in outcomes]})
        return
    print_line(description)
    for outcome in outcomes:
        print_line("Undone: ", bold(outcome.id), f" is {outcome.record.status}", dim(f"  {outcome.memory[:200]}"))


def _describe_undone(memory: Memory, outcomes: tuple[Outcome, ...], user_id: str) -> str:
    """What was taken back, by what it did to the memory that was told of last."""
    lines = memory.history(outcomes[-1].id, user_id=user_id)
    by_number = {line.id: line for line in lines}
    undone = next(by_number[line.undoes] for line in lines if line.undoes in by_number)
    why = f" ({undone.by.why})" if undone.by.why else ""
    return f"Took back change {undone.id}: {undone.verb} by {undone.by.who} at {format_short_time(undone.at)}{why}"
