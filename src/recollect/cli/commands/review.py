"""recollect review"""

from __future__ import annotations

import getpass
from typing import Any

import click

from recollect.cli.command import Command
from recollect.cli.given import Given, pass_given
from recollect.cli.records import ID, say_redacted, short_time
from recollect.cli.table import Column, Row, print_table
from recollect.cli.terminal import bold, dim, print_json, say
from recollect.model.change import Actor
from recollect.model.memory import MemoryRecord

_COLUMNS = [ID, Column("VERSION", style="dim"), Column("SINCE", style="dim"), Column("CATEGORY"), Column("MEMORY")]


@click.command(
    cls=Command,
    whose="user project session",
    examples=(
        "recollect review --user alex",
        'recollect review --edit ID --text "Answer in English" --user alex',
        "recollect review --approve ID --user alex",
    ),
)
@click.option("--approve", metavar="ID", help="Let it be recalled from now on.")
@click.option("--reject", metavar="ID", help="Forget it, unused.")
@click.option("--edit", metavar="ID", help="Give it other words, with --text; it goes on waiting.")
@click.option("--text", metavar="TEXT", help="The words for --edit.")
@click.option("--expect-version", type=int, metavar="N", help="Only if nobody has changed it since version N.")
@click.option("--by", metavar="NAME", help="Who decides. [default: who is logged in]")
@pass_given
def review(
    given: Given,
    approve: str | None,
    reject: str | None,
    edit: str | None,
    text: str | None,
    expect_version: int | None,
    by: str | None,
) -> None:
    """List what waits for a person to look at it, and decide.

    Instructions that the user did not give are kept but not used before a person approves them.
    """
    if sum(option is not None for option in (approve, reject, edit)) > 1:
        raise click.UsageError("Give one of --approve, --reject and --edit.", click.get_current_context())
    if (edit is None) != (text is None):
        raise click.UsageError("--edit and --text go together.", click.get_current_context())
    with given.open() as memory:
        decided: Any = {"user_id": given.user_id, "by": by or _who(), "expected_version": expect_version}
        if approve:
            outcome, did = memory.approve(approve, actor=Actor.PERSON, **decided), "Approved"
        elif reject:
            outcome, did = memory.reject(reject, **decided), "Rejected"
        elif edit:
            outcome, did = memory.edit_review(edit, text, **decided), "Changed"
        else:
            _list(given, list(memory.reviews(**given.place)))
            return
    if given.json:
        print_json(outcome.to_dict())
    else:
        say(f"{did} ", bold(outcome.id), dim(f"  {outcome.memory[:200]}"))
        say_redacted(outcome.redacted)


def _who() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "cli"


def _list(given: Given, waiting: list[MemoryRecord]) -> None:
    if given.json:
        print_json({"results": [record.to_dict() for record in waiting]})
    elif not waiting:
        say(f"Nothing of user {given.user_id} waits for review.")
    else:
        print_table(
            _COLUMNS,
            [
                Row(
                    (record.id, str(record.version), short_time(record.created_at), record.category, record.content),
                    notes=[str(record.detail["review"])] if record.detail.get("review") else [],
                )
                for record in waiting
            ],
        )
