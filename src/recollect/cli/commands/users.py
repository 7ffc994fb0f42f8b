"""recollect users"""

from __future__ import annotations

import click

from recollect.cli.command import Command
from recollect.cli.given import CliContext, pass_cli
from recollect.cli.terminal import dim, print_json, print_line


@click.command(cls=Command, whose="", examples=("recollect users",))
@pass_cli
def users(cli: CliContext) -> None:
    """Name everyone who has memories."""
    with cli.open() as memory:
        names = memory.users()
    if cli.json:
        print_json({"results": names})
        return
    for name in names:
        print_line(name)
    if not names:
        print_line("Nobody yet. ", dim('Begin with: recollect add "..." --user alex'))
