"""recollect add"""

from __future__ import annotations

from typing import Any

import click

from recollect.cli.context import CliContext, Command, pass_cli
from recollect.cli.options import enum_choice, field_options
from recollect.cli.rendering import print_redacted
from recollect.cli.streams import read_text_argument
from recollect.cli.terminal import bold, dim, print_json, print_line
from recollect.model.change import ChangeKind, Outcome
from recollect.model.job import Job, JobState
from recollect.model.scope import Level
from recollect.model.text import validate_text
from recollect.model.turn import Role
from recollect.write.learn import SELECTOR_FALLBACK_PREFIX


@click.command(
    cls=Command,
    scope_options="user project session",
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
        outcome = memory.acting_as("cli", why=why).add(
            content, **cli.scope_args, correction=correction, idempotency_key=idempotency_key, level=level, **fields
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


@click.command(
    cls=Command,
    scope_options="user project session",
    examples=(
        'recollect remember "I moved to Lisbon last week" --user alex --session monday',
        'echo "Noted, congratulations!" | recollect remember --role assistant --user alex --session monday',
    ),
)
@click.argument("text", nargs=-1)
@click.option("--role", **enum_choice(Role), default="user", help="Who said it: user or assistant. [default: user]")
@click.option("--name", metavar="NAME", help="What the speaker is called.")
@click.option("--mode", metavar="MODE", help="What the LLM listens for: chat, document, task or profile.")
@click.option("--no-wait", is_flag=True, help="Leave it to a worker to learn from it.")
@pass_cli
def remember(
    cli: CliContext, text: tuple[str, ...], role: str, name: str | None, mode: str | None, no_wait: bool
) -> None:
    """Keep what was said, as a turn of a session, and learn from it.

    TEXT is what was said; without it, what is piped in. It can be searched at once.
    """
    content = validate_text(read_text_argument(text, name="text"), name="text")
    message = {"role": role, "content": content, **({"name": name} if name else {})}
    with cli.open({"worker": False} if no_wait else None) as memory:
        remembered = memory.acting_as("cli").remember(message, **cli.scope_args, wait=not no_wait, mode=mode)
    if cli.json:
        print_json(remembered.to_dict())
        return
    where = f" of session {cli.session}" if cli.session else ""
    for turn in remembered:
        print_line(f"Remembered turn {turn.position}{where}  ", dim(turn.id))
    print_redacted(remembered.redacted)
    for line in _describe_learning(remembered.job):
        print_line(dim(f"  {line}"))


def _describe_learning(job: Job | None) -> list[str]:
    """What came of learning, a line each."""
    if job is None:
        return []
    if job.state is JobState.DONE:
        result = job.result or {}
        decisions = [str(decision) for decision in result.get("decisions") or []] or ["nothing to learn from it"]
        # Where the LLM was not asked though there is one, that is said, too.
        by = str(result.get("by") or "")
        return [*decisions, f"learned by {by}"] if by.startswith(SELECTOR_FALLBACK_PREFIX) else decisions
    if job.state is JobState.WAITING and not job.error:
        return ["a worker learns from it soon"]
    if job.state is JobState.DEAD:
        return [f"the LLM learned nothing from it (dead): {job.error}", "recollect jobs --replay ID asks it again"]
    return [f"what it says is not learned yet ({job.state}){f': {job.error}' if job.error else ''}"]


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
        outcome = memory.acting_as("cli", why=why).update(
            memory_id, content, user_id=cli.user_id, expected_version=expect_version, **fields
        )
    if cli.json:
        print_json(outcome.to_dict())
        return
    if outcome.changed:
        print_line("Updated ", bold(outcome.id), f" to version {outcome.record.version}.")
    else:
        print_line(bold(outcome.id), " is like that already; nothing changed.")
    print_redacted(outcome.redacted)
