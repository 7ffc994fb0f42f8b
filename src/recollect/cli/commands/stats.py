"""recollect stats"""

from __future__ import annotations

import click

from recollect.cli.command import Command
from recollect.cli.given import Given, pass_given
from recollect.cli.terminal import dim, print_json, say

_MEANINGS = {
    "memories": "active",
    "turns": "active, what was said",
    "superseded": "replaced by a newer value",
    "review": "waiting for a decision",
    "forgotten": "can be restored",
    "history": "changes that can be told and undone",
    "bytes": "on disk",
}


@click.command(cls=Command, whose="everyone", examples=("recollect stats", "recollect stats --user alex"))
@pass_given
def stats(given: Given) -> None:
    """Count what is kept."""
    with given.open() as memory:
        counts = memory.stats(given.user)
    if given.json:
        print_json(dict(counts))
        return
    numbers = {name: f"{number:,}" for name, number in counts.items()}
    longest = max(map(len, numbers.values()))
    for name, number in numbers.items():
        say(name.ljust(15), number.rjust(longest), dim(f"  {_MEANINGS.get(name, '')}"))
