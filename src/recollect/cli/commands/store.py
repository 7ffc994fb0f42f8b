"""recollect add, remember and update."""

from __future__ import annotations

from typing import Any

import click

from recollect.cli.context import CliContext, command, pass_cli
from recollect.cli.options import VERSION_OPTION, WHY_OPTION, enum_choice, field_options, read_text_argument
from recollect.cli.output import bold, dim, print_json, print_line
from recollect.cli.rendering import print_redacted
from recollect.model.change import ChangeKind, Outcome
from recollect.model.job import Job, JobState
from recollect.model.scope import Level
from recollect.model.text import validate_text
from recollect.model.turn import Role


@command(
    'recollect add "The budget for the Hawaii trip is 10,000 dollars" --user alex --tag travel',
    "recollect add --key diet --value vegetarian --category preference --user alex",
    'echo "Prefers window seats" | recollect add --user alex',
    scope="user project session",
)
@click.argument("text", nargs=-1)
@field_options
@click.option(
    "--level",
    **enum_choice(Level),
    help="Where it is visible: user, project or session. [default: the project, if any]",
)
@click.option("--correction", is_flag=True, help="Replace the value of the key, whatever its confidence.")
@click.option("--idempotency-key", metavar="KEY", help="Run once, however often the same key is sent.")
@WHY_OPTION
@pass_cli
def add(cli: CliContext, /, text: tuple[str, ...], fields: dict[str, Any], why: str, **options: Any) -> None:
    """Store a memory verbatim.

    TEXT is the content; without it, standard input is read. Passwords, keys and card numbers are removed. A memory
    that exists is not stored twice. With --key and --value it is a fact with one value at a time.
    """
    is_keyed = not text and fields.get("key") and fields.get("value")
    content = None if is_keyed else read_text_argument(text, name="content")
    with cli.open() as memory:
        outcome = memory.acting_as("cli", why=why).add(content, **cli.scope_args, **options, **fields)
    if cli.json:
        print_json(outcome.to_dict())
    else:
        _print_added(outcome, content)
        print_redacted(outcome.redacted)


def _print_added(outcome: Outcome, content: str | None) -> None:
    record = outcome.record
    if outcome.changed and outcome.verb is ChangeKind.SUPERSEDE:
        print_line("Added ", bold(record.id), f"; it replaces the earlier value of {record.key!r}.")
    elif outcome.changed:
        within = {Level.USER: "", Level.PROJECT: f" in project {record.scope.project}"}
        visible = f"for user {record.scope.user}{within.get(record.level, f' in session {record.scope.session}')}"
        print_line("Added ", bold(record.id), dim(f"  {record.category}, {visible}"))
    elif content is None or outcome.redacted or record.content.casefold().split() == content.casefold().split():
        print_line("Exists as ", bold(record.id), "; nothing changed.")
    else:
        print_line(
            "Not added: ", bold(record.id), f" has a higher confidence for {record.key!r}; --correction replaces it."
        )


@command(
    'recollect remember "I moved to Lisbon last week" --user alex --session monday',
    'echo "Noted, congratulations!" | recollect remember --role assistant --user alex --session monday',
    scope="user project session",
)
@click.argument("text", nargs=-1)
@click.option("--role", **enum_choice(Role), default="user", help="Who said it: user or assistant. [default: user]")
@click.option("--name", metavar="NAME", help="The speaker's name.")
@click.option("--mode", metavar="MODE", help="What the LLM extracts from: chat, document, task or profile.")
@click.option("--no-wait", is_flag=True, help="Leave learning to a worker.")
@pass_cli
def remember(
    cli: CliContext, text: tuple[str, ...], role: str, name: str | None, mode: str | None, no_wait: bool
) -> None:
    """Store a turn of a session, and learn from it.

    TEXT is the message; without it, standard input is read. It can be searched at once.
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
    """Return the decisions of the learning job, or its state, a line each."""
    if job is None:
        return []
    if job.state is JobState.DONE:
        result = job.result or {}
        decisions = [str(decision) for decision in result.get("decisions") or []] or ["nothing to learn from it"]
        by = str(result.get("by") or "")
        # The selector gives the reason if it replaced the LLM.
        return [*decisions, f"learned by {by}"] if by.startswith("selector, ") else decisions
    if job.state is JobState.WAITING and not job.error:
        return ["a worker will learn from it"]
    if job.state is JobState.DEAD:
        return [f"the LLM learned nothing from it (dead): {job.error}", "recollect jobs --replay ID tries again"]
    return [f"not learned from yet ({job.state}){f': {job.error}' if job.error else ''}"]


@command(
    'recollect update ID "The budget for the Hawaii trip is 12,000 dollars" --user alex',
    "recollect update ID --importance 0.9 --tag travel --tag money --user alex",
)
@click.argument("memory_id", metavar="ID")
@click.argument("text", nargs=-1)
@field_options
@VERSION_OPTION
@WHY_OPTION
@pass_cli
def update(
    cli: CliContext,
    memory_id: str,
    text: tuple[str, ...],
    fields: dict[str, Any],
    expect_version: int | None,
    why: str,
) -> None:
    """Change the text or the fields of a memory.

    TEXT replaces its text; "-" reads standard input. Tags and metadata are replaced as a whole.
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
        print_line(bold(outcome.id), " already has these values; nothing changed.")
    print_redacted(outcome.redacted)
