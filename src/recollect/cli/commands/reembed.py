"""recollect reembed"""

from __future__ import annotations

import click

from recollect.cli.command import Command
from recollect.cli.given import Given, pass_given
from recollect.cli.progress import Progress
from recollect.cli.records import counted
from recollect.cli.terminal import print_json, say


@click.command(cls=Command, whose="", examples=("recollect reembed",))
@pass_given
def reembed(given: Given) -> None:
    """Make vectors of the current model where they are missing.

    Run it after a change of the embedder. It can be broken off and run again; meanwhile search goes on by words.
    Vectors of other models are removed at the end.
    """
    with given.open() as memory, Progress("Embedding") as progress:
        count = memory.reembed(progress)
    if given.json:
        print_json({"embedded": count})
    elif count:
        say(f"Embedded {counted(count, 'memory', 'memories')}.")
    else:
        say("Every memory has a vector of the current model.")
