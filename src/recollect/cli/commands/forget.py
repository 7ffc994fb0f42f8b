"""recollect forget"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from recollect.cli.context import CliContext, Command, pass_cli
from recollect.cli.options import filter_options
from recollect.cli.receipts import ask_confirmation, list_receipts, print_receipt, replay_receipts
from recollect.cli.rendering import format_short_time, pluralize
from recollect.cli.terminal import bold, clean, dim, print_json, print_line
from recollect.model.query import EVERYTHING, Filter

if TYPE_CHECKING:
    from recollect.model.change import Outcome
    from recollect.sync import Memory


_MAX_COUNTED = 1000


@click.command(
    cls=Command,
    scope_options="user project session",
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
    outcome = memory.acting_as("cli", why=why).delete(memory_id, user_id=cli.user_id)
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
    count = memory.acting_as("cli", why=why).delete_all(**cli.scope_args, filters=filter)
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


@click.command(cls=Command, examples=("recollect restore ID --user alex",))
@click.argument("memory_id", metavar="ID")
@click.option("--why", default="", metavar="TEXT", help="The reason, kept in history.")
@pass_cli
def restore(cli: CliContext, memory_id: str, why: str) -> None:
    """Make a forgotten or superseded memory active again."""
    with cli.open() as memory:
        outcome = memory.acting_as("cli", why=why).restore(memory_id, user_id=cli.user_id)
    if cli.json:
        print_json(outcome.to_dict())
    elif outcome.changed:
        print_line("Restored ", bold(outcome.id))
    else:
        print_line(bold(outcome.id), " is active already.")


@click.command(
    cls=Command,
    examples=("recollect undo --user alex", "recollect undo 12 --user alex", "recollect undo --any --user alex"),
)
@click.argument("change_id", metavar="[CHANGE]", type=int, required=False)
@click.option("--any", "anyones", is_flag=True, help="The last change whoever made it: learning and upkeep too.")
@click.option("--why", default="", metavar="TEXT", help="The reason, kept in history.")
@pass_cli
def undo(cli: CliContext, change_id: int | None, anyones: bool, why: str) -> None:
    """Take back the last thing that someone did or said, or a change by its number.

    What was said goes with what was learned from it. CHANGE is the number that history tells. An undo can be undone
    by its own number.
    """
    if anyones and change_id is not None:
        raise click.UsageError("Give either a number or --any.", click.get_current_context())
    with cli.open() as memory:
        outcomes = memory.acting_as("cli", why=why).undo(change_id, user_id=cli.user_id, anyones=anyones)
        description = "" if cli.json else _describe_undone(memory, outcomes, cli.user_id)
    if cli.json:
        print_json({"results": [outcome.to_dict() for outcome in outcomes]})
        return
    print_line(description)
    for outcome in outcomes:
        print_line("Undone: ", bold(outcome.id), f" is {outcome.record.status}", dim(f"  {outcome.memory[:200]}"))


def _describe_undone(memory: Memory, outcomes: tuple[Outcome, ...], user_id: str) -> str:
    """What was taken back, by what it did to the memory that was told of last."""
    lines = memory.history(outcomes[-1].id, user_id=user_id)
    by_number = {line.id: line for line in lines}
    undone = next(by_number[line.undoes] for line in lines if line.undoes in by_number)
    why = f" ({undone.by.why})" if undone.by.why else ""
    return f"Took back change {undone.id}: {undone.verb} by {undone.by.who} at {format_short_time(undone.at)}{why}"


@click.command(
    cls=Command,
    scope_options="user project session",
    examples=(
        "recollect erase --memory ID --user alex --yes",
        "recollect erase --session monday --user alex --yes",
        "recollect erase --everything --user alex --yes",
        "recollect erase --receipts --to erased.jsonl",
        "recollect erase --replay erased.jsonl --yes",
    ),
)
@click.option("--memory", "memory_id", metavar="ID", help="One memory, with the versions before it.")
@click.option("--turn", "turn_id", metavar="ID", help="One turn, with all that was learned from it.")
@click.option("--everything", is_flag=True, help="All of the user, or of the project or session that is named.")
@click.option("--receipts", is_flag=True, help="List what was erased so far, without what it said.")
@click.option("--to", metavar="FILE", help="With --receipts: write them there as JSON Lines; - is standard output.")
@click.option("--replay", metavar="FILE", help="Erase again what those receipts tell, in a database restored since.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@click.option("--why", default="", metavar="TEXT", help="The reason, kept with the receipt.")
@pass_cli
def erase(
    cli: CliContext,
    memory_id: str | None,
    turn_id: str | None,
    everything: bool,
    receipts: bool,
    to: str | None,
    replay: str | None,
    yes: bool,
    why: str,
) -> None:
    """Remove something for good, with all that was derived from it.

    Unlike forget, nothing brings it back. The receipt says what went from each store, and what was not reached. A
    backup is not: keep --receipts beside it, and --replay them once it is restored, before anyone uses it.
    """
    if receipts or replay is not None or to is not None:
        if memory_id or turn_id or everything or cli.project or cli.session or (receipts == (replay is not None)):
            raise click.UsageError("--receipts, with --to, and --replay stand alone.", click.get_current_context())
        if receipts:
            list_receipts(cli, to)
        else:
            replay_receipts(cli, replay or "", yes=yes, why=why)
        return
    description = _describe_target(cli, memory_id, turn_id, everything)
    if not yes and not ask_confirmation(cli, f"Erase {description} for good?"):
        print_line("Nothing was erased.", err=True)
        return
    with cli.open() as memory:
        whole = not (memory_id or turn_id or cli.session or cli.project)
        receipt = memory.acting_as("cli", why=why).erasure.erase(
            **cli.scope_args, memory_id=memory_id, turn_id=turn_id, everything=whole
        )
    if cli.json:
        print_json(receipt.to_dict())
    else:
        print_receipt(receipt, description)


def _describe_target(cli: CliContext, memory_id: str | None, turn_id: str | None, everything: bool) -> str:
    """What is to go, in words; a usage error unless exactly one thing is named."""
    context = click.get_current_context()
    targets = [f"{kind} {id}" for kind, id in (("memory", memory_id), ("turn", turn_id)) if id is not None]
    if len(targets) > 1 or (targets and everything):
        raise click.UsageError("Say one thing: --memory, --turn or --everything.", context)
    if not (targets or everything or cli.session or cli.project):
        raise click.UsageError("Say what: --memory, --turn, --session, --project, or --everything.", context)
    within = "".join(f" in {name} {value}" for name in ("project", "session") if (value := getattr(cli, name)))
    return f"{targets[0] if targets else 'everything'} of user {cli.user_id}{within}"
