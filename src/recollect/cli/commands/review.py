"""recollect review"""

from __future__ import annotations

import getpass
from typing import Any

import click

from recollect.cli.command import Command
from recollect.cli.given import CliContext, pass_cli
from recollect.cli.records import ID_COLUMN, format_short_time, print_redacted
from recollect.cli.table import Column, TableRow, print_table
from recollect.cli.terminal import bold, dim, print_json, print_line
from recollect.model.change import Actor
from recollect.model.memory import MemoryRecord

_REVIEW_COLUMNS = [
    ID_COLUMN,
    Column("VERSION", style="dim"),
    Column("SINCE", style="dim"),
    Column("CATEGORY"),
    Column("MEMORY"),
]


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
@pass_cli
def review(
    cli: CliContext,
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
    with cli.open() as memory:
        decision: Any = {"user_id": cli.user_id, "by": by or _login_name(), "expected_version": expect_version}
        if approve:
            outcome, verb = memory.approve(approve, actor=Actor.PERSON, **decision), "Approved"
        elif reject:
            outcome, verb = memory.reject(reject, **decision), "Rejected"
        elif edit:
            outcome, verb = memory.edit_review(edit, text, **decision), "Changed"
        else:
            _print_reviews(cli, list(memory.reviews(**cli.scope_args)))
            return
    if cli.json:
        print_json(outcome.to_dict())
    else:
        print_line(f"{verb} ", bold(outcome.id), dim(f"  {outcome.memory[:200]}"))
        print_redacted(outcome.redacted)


def _login_name() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "cli"


def _print_reviews(cli: CliContext, waiting: list[MemoryRecord]) -> None:
    if cli.json:
        print_json({"results": [record.to_dict() for record in waiting]})
    elif not waiting:
        print_line(f"Nothing of user {cli.user_id} waits for review.")
    else:
        print_table(
            _REVIEW_COLUMNS,
            [
                TableRow(
                    (
                        record.id,
                        str(record.version),
                        format_short_time(record.created_at),
                        record.category,
                        record.content,
                    ),
                    notes=[str(record.detail["review"])] if record.detail.get("review") else [],
                )
                for record in waiting
            ],
        )
