"""recollect users"""

from __future__ import annotations

import click

from recollect.cli.command import Command
from recollect.cli.given import Given, pass_given
from recollect.cli.terminal import dim, print_json, say


@click.command(cls=Command, whose="", examples=("recollect users",))
@pass_given
def users(given: Given) -> None:
    """Name everyone who has memories."""
    with given.open() as memory:
        names = memory.users()
    if given.json:
        print_json({"results": names})
        return
    for name in names:
        say(name)
    if not names:
        say("Nobody yet. ", dim('Begin with: recollect add "..." --user alex'))
