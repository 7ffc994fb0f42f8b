"""recollect show"""

from __future__ import annotations

import click

from recollect.cli.asking import AS_OF_OPTION, parse_moment
from recollect.cli.command import Command
from recollect.cli.given import CliContext, pass_cli
from recollect.cli.records import print_record
from recollect.cli.terminal import print_json


@click.command(cls=Command, examples=("recollect show ID --user alex",))
@click.argument("memory_id", metavar="ID")
@AS_OF_OPTION
@pass_cli
def show(cli: CliContext, memory_id: str, as_of: str | None) -> None:
    """Show all there is to know about one memory."""
    with cli.open() as memory:
        record = memory.get(memory_id, user_id=cli.user_id, as_of=parse_moment(as_of, name="--as-of"))
    if cli.json:
        print_json(record.to_dict())
    else:
        print_record(record)
