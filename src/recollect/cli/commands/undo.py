"""recollect undo"""

from __future__ import annotations

import click

from recollect.cli.command import Command
from recollect.cli.given import Given, pass_given
from recollect.cli.terminal import bold, dim, print_json, say


@click.command(cls=Command, examples=("recollect undo --user alex", "recollect undo 12 --user alex"))
@click.argument("change_id", metavar="[CHANGE]", type=int, required=False)
@click.option("--why", default="", metavar="TEXT", help="The reason, kept in history.")
@pass_given
def undo(given: Given, change_id: int | None, why: str) -> None:
    """Take back the last change, or one by its number.

    CHANGE is the number that history tells. An undo can be undone by its own number.
    """
    with given.open() as memory:
        outcomes = memory.undo(change_id, user_id=given.user_id, by="cli", why=why)
    if given.json:
        print_json({"results": [outcome.to_dict() for outcome in outcomes]})
        return
    for outcome in outcomes:
        say("Undone: ", bold(outcome.id), f" is {outcome.record.status}", dim(f"  {outcome.memory[:200]}"))
