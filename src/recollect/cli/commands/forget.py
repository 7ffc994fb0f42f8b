"""recollect forget"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from recollect.cli.command import Command
from recollect.cli.filters import filter_options
from recollect.cli.given import CliContext, pass_cli
from recollect.cli.records import pluralize
from recollect.cli.terminal import bold, clean, dim, print_json, print_line
from recollect.model.query import EVERYTHING, Filter

if TYPE_CHECKING:
    from recollect.sync import Memory

_MAX_COUNTED = 1000


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
@pass_cli
def forget(cli: CliContext, memory_id: str | None, everything: bool, yes: bool, why: str, filter: Filter) -> None:
    """Take a memory, or all of them, out of recall.

    It is not found any more; undo and restore bring it back.
    """
    if (memory_id is None) != everything:
        raise click.UsageError("Give the ID of a memory, or --all.", click.get_current_context())
    if memory_id is not None and filter != EVERYTHING:
        raise click.UsageError("Filters go with --all.", click.get_current_context())
    with cli.open() as memory:
        if memory_id is None:
            _forget_all(cli, memory, filter, yes=yes, why=why)
        else:
            _forget_one(cli, memory, memory_id, why=why)


def _forget_one(cli: CliContext, memory: Memory, memory_id: str, *, why: str) -> None:
    outcome = memory.delete(memory_id, user_id=cli.user_id, by="cli", why=why)
    if cli.json:
        print_json(outcome.to_dict())
    elif outcome.changed:
        print_line("Forgot ", bold(outcome.id), dim("  recollect undo brings it back"))
    else:
        print_line(bold(outcome.id), " was forgotten already.")


def _forget_all(cli: CliContext, memory: Memory, filter: Filter, *, yes: bool, why: str) -> None:
    if not yes and not _confirm_forget_all(cli, memory, filter):
        print_line("Nothing was forgotten.", err=True)
        return
    count = memory.delete_all(**cli.scope_args, filters=filter, by="cli", why=why)
    if cli.json:
        print_json({"forgotten": count})
    else:
        print_line(f"Forgot {pluralize(count, 'memory', 'memories')}.")


def _confirm_forget_all(cli: CliContext, memory: Memory, filter: Filter) -> bool:
    if cli.json or not sys.stdin.isatty():
        raise click.UsageError("Add --yes: there is nobody to ask.", click.get_current_context())
    page = memory.get_all(**cli.scope_args, filters=filter, turns=True, limit=_MAX_COUNTED)
    if not len(page):
        print_line(f"User {cli.user_id} has nothing there.", err=True)
        return False
    count_text = f"more than {_MAX_COUNTED:,} memories" if page.cursor else pluralize(len(page), "memory", "memories")
    within = "".join(f" in {name} {value}" for name in ("project", "session") if (value := getattr(cli, name)))
    return click.confirm(clean(f"Forget {count_text} of user {cli.user_id}{within}?"), err=True)
