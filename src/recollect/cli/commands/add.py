"""recollect add"""

from __future__ import annotations

from typing import Any

import click

from recollect.cli.command import Command
from recollect.cli.fields import field_options
from recollect.cli.filters import enum_choice
from recollect.cli.given import CliContext, pass_cli
from recollect.cli.records import print_redacted
from recollect.cli.terminal import bold, dim, print_json, print_line
from recollect.cli.texts import read_text_argument
from recollect.model.change import ChangeKind, Outcome
from recollect.model.scope import Level


@click.command(
    cls=Command,
    whose="user project session",
    examples=(
        'recollect add "The budget for the Hawaii trip is 10,000 dollars" --user alex --tag travel',
        "recollect add --key diet --value vegetarian --category preference --user alex",
        'echo "Prefers window seats" | recollect add --user alex',
    ),
)
@click.argument("text", nargs=-1)
@field_options
@click.option(
    "--level", **enum_choice(Level), help="Where it is seen: user, project or session. [default: the project, if any]"
)
@click.option("--correction", is_flag=True, help="Replace the value of the key, however sure that is.")
@click.option("--idempotency-key", metavar="KEY", help="Done once, however often the same key is sent.")
@click.option("--why", default="", metavar="TEXT", help="The reason, kept in history.")
@pass_cli
def add(
    cli: CliContext,
    text: tuple[str, ...],
    fields: dict[str, Any],
    level: str | None,
    correction: bool,
    idempotency_key: str | None,
    why: str,
) -> None:
    """Keep a memory, word for word.

    TEXT is what to keep; without it, what is piped in. Passwords, keys and card numbers are kept out of it. What is
    already there is not kept twice. With --key and --value it is a fact that has one value at a time.
    """
    content = (
        None if not text and fields.get("key") and fields.get("value") else read_text_argument(text, name="content")
    )
    with cli.open() as memory:
        outcome = memory.add(
            content,
            **cli.scope_args,
            correction=correction,
            idempotency_key=idempotency_key,
            by="cli",
            why=why,
            level=level,
            **fields,
        )
    if cli.json:
        print_json(outcome.to_dict())
    else:
        _print_added(outcome, content)
        print_redacted(outcome.redacted)


def _print_added(outcome: Outcome, content: str | None) -> None:
    record = outcome.record
    if outcome.changed and outcome.verb is ChangeKind.SUPERSEDE:
        print_line("Added ", bold(record.id), f"; it takes the place of the earlier value of {record.key!r}.")
    elif outcome.changed:
        print_line("Added ", bold(record.id), dim(f"  {record.category}, {_describe_visibility(outcome)}"))
    elif content is None or outcome.redacted or record.content.casefold().split() == content.casefold().split():
        print_line("Already there as ", bold(record.id), "; nothing changed.")
    else:
        print_line("Kept ", bold(record.id), f", which is surer of {record.key!r}; --correction replaces it.")


def _describe_visibility(outcome: Outcome) -> str:
    scope = outcome.record.scope
    match outcome.record.level:
        case Level.USER:
            return f"for user {scope.user}"
        case Level.PROJECT:
            return f"for user {scope.user} in project {scope.project}"
        case Level.SESSION:
            return f"for user {scope.user} in session {scope.session}"
