"""recollect show"""

from __future__ import annotations

import click

from recollect.cli.asking import AS_OF, moment
from recollect.cli.command import Command
from recollect.cli.given import Given, pass_given
from recollect.cli.records import say_record
from recollect.cli.terminal import print_json


@click.command(cls=Command, examples=("recollect show ID --user alex",))
@click.argument("memory_id", metavar="ID")
@AS_OF
@pass_given
def show(given: Given, memory_id: str, as_of: str | None) -> None:
    """Show all there is to know about one memory."""
    with given.open() as memory:
        record = memory.get(memory_id, user_id=given.user_id, as_of=moment(as_of, name="--as-of"))
    if given.json:
        print_json(record.to_dict())
    else:
        say_record(record)
