"""recollect restore"""

from __future__ import annotations

import click

from recollect.cli.command import Command
from recollect.cli.given import CliContext, pass_cli
from recollect.cli.terminal import bold, print_json, print_line


@click.command(cls=Command, examples=("recollect restore ID --user alex",))
@click.argument("memory_id", metavar="ID")
@click.option("--why", default="", metavar="TEXT", help="The reason, kept in history.")
@pass_cli
def restore(cli: CliContext, memory_id: str, why: str) -> None:
    """Make a forgotten or superseded memory active again."""
    with cli.open() as memory:
        outcome = memory.restore(memory_id, user_id=cli.user_id, by="cli", why=why)
    if cli.json:
        print_json(outcome.to_dict())
    elif outcome.changed:
        print_line("Restored ", bold(outcome.id))
    else:
        print_line(bold(outcome.id), " is active already.")
