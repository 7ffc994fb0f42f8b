"""recollect update"""

from __future__ import annotations

from typing import Any

import click

from recollect.cli.command import Command
from recollect.cli.fields import field_options
from recollect.cli.given import CliContext, pass_cli
from recollect.cli.records import print_redacted
from recollect.cli.terminal import bold, print_json, print_line
from recollect.cli.texts import read_text_argument


@click.command(
    cls=Command,
    examples=(
        'recollect update ID "The budget for the Hawaii trip is 12,000 dollars" --user alex',
        "recollect update ID --importance 0.9 --tag travel --tag money --user alex",
    ),
)
@click.argument("memory_id", metavar="ID")
@click.argument("text", nargs=-1)
@field_options
@click.option("--expect-version", type=int, metavar="N", help="Only if nobody has changed it since version N.")
@click.option("--why", default="", metavar="TEXT", help="The reason, kept in history.")
@pass_cli
def update(
    cli: CliContext,
    memory_id: str,
    text: tuple[str, ...],
    fields: dict[str, Any],
    expect_version: int | None,
    why: str,
) -> None:
    """Change the words or the fields of a memory.

    TEXT takes the place of its words; "-" reads them from standard input. Tags and metadata are replaced as a whole.
    """
    content = read_text_argument(text, name="content") if text else None
    with cli.open() as memory:
        outcome = memory.update(
            memory_id,
            content,
            user_id=cli.user_id,
            expected_version=expect_version,
            by="cli",
            why=why,
            **fields,
        )
    if cli.json:
        print_json(outcome.to_dict())
        return
    if outcome.changed:
        print_line("Updated ", bold(outcome.id), f" to version {outcome.record.version}.")
    else:
        print_line(bold(outcome.id), " is like that already; nothing changed.")
    print_redacted(outcome.redacted)
