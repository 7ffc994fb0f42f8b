"""recollect remember"""

from __future__ import annotations

import click

from recollect.cli.command import Command
from recollect.cli.filters import choice
from recollect.cli.given import Given, pass_given
from recollect.cli.terminal import dim, print_json, say
from recollect.cli.texts import given_text
from recollect.model.text import checked_text
from recollect.model.turn import Role


@click.command(
    cls=Command,
    whose="user project session",
    examples=(
        'recollect remember "I moved to Lisbon last week" --user alex --session monday',
        'echo "Noted, congratulations!" | recollect remember --role assistant --user alex --session monday',
    ),
)
@click.argument("text", nargs=-1)
@click.option("--role", **choice(Role), default="user", help="Who said it: user or assistant. [default: user]")
@click.option("--name", metavar="NAME", help="What the speaker is called.")
@pass_given
def remember(given: Given, text: tuple[str, ...], role: str, name: str | None) -> None:
    """Keep what was said, as a turn of a session.

    TEXT is what was said; without it, what is piped in. It can be searched at once.
    """
    said = checked_text(given_text(text, name="text"), name="text")
    message = {"role": role, "content": said, **({"name": name} if name else {})}
    with given.open() as memory:
        turns = memory.remember(message, **given.place, by="cli")
    if given.json:
        print_json({"turns": [turn.to_dict() for turn in turns]})
        return
    where = f" of session {given.session}" if given.session else ""
    for turn in turns:
        say(f"Remembered turn {turn.position}{where}  ", dim(turn.id))
