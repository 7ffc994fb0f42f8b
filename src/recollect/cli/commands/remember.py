"""recollect remember"""

from __future__ import annotations

import click

from recollect.cli.command import Command
from recollect.cli.filters import enum_choice
from recollect.cli.given import CliContext, pass_cli
from recollect.cli.records import print_redacted
from recollect.cli.terminal import dim, print_json, print_line
from recollect.cli.texts import read_text_argument
from recollect.model.job import Job, JobState
from recollect.model.text import validate_text
from recollect.model.turn import Role
from recollect.write.learn import SELECTOR_FALLBACK_PREFIX


@click.command(
    cls=Command,
    whose="user project session",
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
        remembered = memory.remember(message, **cli.scope_args, by="cli", wait=not no_wait, mode=mode)
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
