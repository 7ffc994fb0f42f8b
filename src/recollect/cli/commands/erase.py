"""recollect erase"""

from __future__ import annotations

import click

from recollect.cli.command import Command
from recollect.cli.erasures import ask_confirmation, list_receipts, print_receipt, replay_receipts
from recollect.cli.given import CliContext, pass_cli
from recollect.cli.terminal import print_json, print_line


@click.command(
    cls=Command,
    whose="user project session",
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
        receipt = memory.erase(
            **cli.scope_args, memory_id=memory_id, turn_id=turn_id, everything=whole, by="cli", why=why
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
