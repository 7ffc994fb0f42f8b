"""recollect erase"""

from __future__ import annotations

import sys

import click

from recollect.cli.command import Command
from recollect.cli.given import Given, pass_given
from recollect.cli.records import counted
from recollect.cli.terminal import clean, dim, print_json, say
from recollect.model.erase import Receipt


@click.command(
    cls=Command,
    whose="user project session",
    examples=(
        "recollect erase --memory ID --user alex --yes",
        "recollect erase --session monday --user alex --yes",
        "recollect erase --everything --user alex --yes",
    ),
)
@click.option("--memory", "memory_id", metavar="ID", help="One memory, with the versions before it.")
@click.option("--turn", "turn_id", metavar="ID", help="One turn, with all that was learned from it.")
@click.option("--everything", is_flag=True, help="All of the user, or of the project or session that is named.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@click.option("--why", default="", metavar="TEXT", help="The reason, kept with the receipt.")
@pass_given
def erase(given: Given, memory_id: str | None, turn_id: str | None, everything: bool, yes: bool, why: str) -> None:
    """Remove something for good, with all that was derived from it.

    Unlike forget, nothing brings it back. The receipt says what went from each store, and what was not reached.
    """
    what = _what(given, memory_id, turn_id, everything)
    if not yes and not _agreed(given, what):
        say("Nothing was erased.", err=True)
        return
    with given.open() as memory:
        whole = not (memory_id or turn_id or given.session or given.project)
        receipt = memory.erase(
            **given.place, memory_id=memory_id, turn_id=turn_id, everything=whole, by="cli", why=why
        )
    if given.json:
        print_json(receipt.to_dict())
    else:
        _tell(receipt, what)


def _what(given: Given, memory_id: str | None, turn_id: str | None, everything: bool) -> str:
    """What is to go, in words; a usage error unless exactly one thing is named."""
    context = click.get_current_context()
    named = [f"{kind} {id}" for kind, id in (("memory", memory_id), ("turn", turn_id)) if id is not None]
    if len(named) > 1 or (named and everything):
        raise click.UsageError("Say one thing: --memory, --turn or --everything.", context)
    if not (named or everything or given.session or given.project):
        raise click.UsageError("Say what: --memory, --turn, --session, --project, or --everything.", context)
    within = "".join(f" in {name} {value}" for name in ("project", "session") if (value := getattr(given, name)))
    return f"{named[0] if named else 'everything'} of user {given.user_id}{within}"


def _agreed(given: Given, what: str) -> bool:
    if given.json or not sys.stdin.isatty():
        raise click.UsageError("Add --yes: there is nobody to ask.", click.get_current_context())
    return click.confirm(clean(f"Erase {what} for good?"), err=True)


def _tell(receipt: Receipt, what: str) -> None:
    say(f"Erased {what} for good  ", dim(f"receipt {receipt.id}"))
    for store in receipt.stores:
        gone = ", ".join(f"{name} {count:,}" for name, count in store.counts.items() if count) or "nothing"
        say(f"  {store.store}: {gone}", dim(f"  {store.note}") if store.note else "")
    if receipt.remade:
        say(dim(f"  {counted(len(receipt.remade), 'thing')} can be made anew from what is left"))
    if receipt.stays:
        say(dim(f"  what it was learned from stays: {', '.join(receipt.stays)}"))
    if not receipt.reached:
        say("Not every store could be reached: erase it again once they can.", err=True)
