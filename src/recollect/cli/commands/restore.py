"""recollect restore"""

from __future__ import annotations

import click

from recollect.cli.command import Command
from recollect.cli.given import Given, pass_given
from recollect.cli.terminal import bold, print_json, say


@click.command(cls=Command, examples=("recollect restore ID --user alex",))
@click.argument("memory_id", metavar="ID")
@click.option("--why", default="", metavar="TEXT", help="The reason, kept in history.")
@pass_given
def restore(given: Given, memory_id: str, why: str) -> None:
    """Make a forgotten or superseded memory active again."""
    with given.open() as memory:
        outcome = memory.restore(memory_id, user_id=given.user_id, by="cli", why=why)
    if given.json:
        print_json(outcome.to_dict())
    elif outcome.changed:
        say("Restored ", bold(outcome.id))
    else:
        say(bold(outcome.id), " is active already.")
