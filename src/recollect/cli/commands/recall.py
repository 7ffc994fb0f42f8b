"""recollect recall"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from recollect.cli.asking import Asked, asking_options
from recollect.cli.command import Command
from recollect.cli.given import Given, pass_given
from recollect.cli.records import CATEGORY, ID, MEMORY
from recollect.cli.table import Column, Row, print_table
from recollect.cli.terminal import bold, clean_lines, dim, print_json, say
from recollect.cli.texts import given_text
from recollect.cli.traces import say_trace
from recollect.errors import InvalidInput
from recollect.model.result import Hit, Recalled

_SCORE = Column("SCORE", style="bold", right=True)
# How notes begin that tell what was done as planned; all others tell what failed.
_AS_PLANNED = (
    "searched: ",
    "the question stands alone",
    "vague, and ",
    "terms of ",
    "completed by ",
    "an answer imagined by ",
)


@click.command(
    cls=Command,
    whose="user project session",
    examples=(
        'recollect recall "What is my budget for the trip?" --user alex',
        'recollect recall "What is my budget for the trip?" --user alex --preset semantic-router --explain',
        """echo '[{"role": "user", "content": "How much?"}]' | recollect recall --messages - --user alex""",
    ),
)
@click.argument("question", nargs=-1)
@click.option("--messages", metavar="FILE", help="A JSON list of chat messages, or - to pipe it in; not a QUESTION.")
@click.option("--is-fact/--is-no-fact", default=None, help="It asks for general knowledge; or it does not.")
@click.option("--requires-tool/--requires-no-tool", default=None, help="A tool will answer it; or none will.")
@click.option("--explain", is_flag=True, help="Tell what was decided, what became of every candidate, and the times.")
@asking_options(least=0)
@pass_given
def recall(
    given: Given,
    question: tuple[str, ...],
    messages: str | None,
    is_fact: bool | None,
    requires_tool: bool | None,
    explain: bool,
    asked: Asked,
) -> None:
    """Ask memory as a chat would, and show what goes into the prompt.

    QUESTION is what the user says; without it, what is piped in. With --messages the last user message is the
    question, and those before it complete it.
    """
    said = _given_messages(question, messages) if messages else given_text(question, name="question")
    with given.open() as memory:
        recalled = memory.recall(
            said, **given.place, **asked, is_fact=is_fact, requires_tool=requires_tool, trace=explain
        )
        learned = memory.settings.fusion == "learned"
    if given.json:
        print_json(recalled.to_dict())
        return
    _say_prompt(recalled, explain=explain)
    if explain:
        say()
        say_trace(recalled.hits, recalled.candidates, recalled.steps_us, learned=learned)
        return
    if recalled.hits:
        say()
        print_table([_SCORE, ID, CATEGORY, MEMORY], [_row(hit, recalled) for hit in recalled])
    for note in recalled.notes:
        if given.verbose or not note.startswith(_AS_PLANNED):
            say(dim(note), err=True)


def _given_messages(question: Sequence[str], file: str) -> Any:
    """The messages of a file; what they must look like is for the API to say."""
    if question:
        raise click.UsageError("Give a QUESTION or --messages, not both.", click.get_current_context())
    if file == "-" and (sys.stdin is None or sys.stdin.isatty()):
        raise click.UsageError("Name a file, or pipe the messages in.", click.get_current_context())
    try:
        text = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise click.FileError(file, error.strerror or "") from None
    try:
        told = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"the messages are not JSON: {error}") from None
    if not isinstance(told, list):
        raise InvalidInput('the messages are not a JSON list, such as [{"role": "user", "content": "How much?"}]')
    return told


def _say_prompt(recalled: Recalled, *, explain: bool) -> None:
    """What it came to, and the block that would go into the prompt."""
    say(bold(recalled.outcome), f": {recalled.reason}")
    if explain:
        for line in (*recalled.notes, *([f"query: {recalled.query}"] if recalled.query else ())):
            say(dim(line))
    if recalled.context.text:
        say()
        for line in clean_lines(recalled.context.text.rstrip("\n")):
            say(line)


def _row(hit: Hit, recalled: Recalled) -> Row:
    context = recalled.context
    told = (
        f"left out: {context.dropped[hit.id]}" if hit.id in context.dropped else "",
        f"cut: {context.cut[hit.id]}" if hit.id in context.cut else "",
        context.flagged.get(hit.id, ""),
    )
    return Row((f"{hit.score:.2f}", hit.id, hit.record.category, hit.memory), notes=[note for note in told if note])
