"""recollect forget"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from recollect.cli.command import Command
from recollect.cli.filters import filter_options
from recollect.cli.given import Given, pass_given
from recollect.cli.records import counted
from recollect.cli.terminal import bold, clean, dim, print_json, say
from recollect.model.query import EVERYTHING, Filter

if TYPE_CHECKING:
    from recollect.sync import Memory

_COUNTED = 1000


@click.command(
    cls=Command,
    whose="user project session",
    examples=(
        "recollect forget ID --user alex",
        "recollect forget --all --user alex --tag travel --yes",
    ),
)
@click.argument("memory_id", metavar="[ID]", required=False)
@click.option("--all", "everything", is_flag=True, help="Everything of the user, turns too; the filters narrow it.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@click.option("--why", default="", metavar="TEXT", help="The reason, kept in history.")
@filter_options
@pass_given
def forget(given: Given, memory_id: str | None, everything: bool, yes: bool, why: str, filter: Filter) -> None:
    """Take a memory, or all of them, out of recall.

    It is not found any more; undo and restore bring it back.
    """
    if (memory_id is None) != everything:
        raise click.UsageError("Give the ID of a memory, or --all.", click.get_current_context())
    if memory_id is not None and filter != EVERYTHING:
        raise click.UsageError("Filters go with --all.", click.get_current_context())
    with given.open() as memory:
        if memory_id is None:
            _forget_all(given, memory, filter, yes=yes, why=why)
        else:
            _forget_one(given, memory, memory_id, why=why)


def _forget_one(given: Given, memory: Memory, memory_id: str, *, why: str) -> None:
    outcome = memory.delete(memory_id, user_id=given.user_id, by="cli", why=why)
    if given.json:
        print_json(outcome.to_dict())
    elif outcome.changed:
        say("Forgot ", bold(outcome.id), dim("  recollect undo brings it back"))
    else:
        say(bold(outcome.id), " was forgotten already.")


def _forget_all(given: Given, memory: Memory, filter: Filter, *, yes: bool, why: str) -> None:
    if not yes and not _agreed(given, memory, filter):
        say("Nothing was forgotten.", err=True)
        return
    count = memory.delete_all(**given.place, filters=filter, by="cli", why=why)
    if given.json:
        print_json({"forgotten": count})
    else:
        say(f"Forgot {counted(count, 'memory', 'memories')}.")


def _agreed(given: Given, memory: Memory, filter: Filter) -> bool:
    if given.json or not sys.stdin.isatty():
        raise click.UsageError("Add --yes: there is nobody to ask.", click.get_current_context())
    page = memory.get_all(**given.place, filters=filter, turns=True, limit=_COUNTED)
    if not len(page):
        say(f"User {given.user_id} has nothing there.", err=True)
        return False
    many = f"more than {_COUNTED:,} memories" if page.cursor else counted(len(page), "memory", "memories")
    within = "".join(f" in {name} {value}" for name in ("project", "session") if (value := getattr(given, name)))
    return click.confirm(clean(f"Forget {many} of user {given.user_id}{within}?"), err=True)
