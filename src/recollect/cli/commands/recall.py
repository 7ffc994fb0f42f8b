"""recollect recall"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from recollect.cli.asking import SearchOptions, search_options
from recollect.cli.command import Command
from recollect.cli.given import CliContext, pass_cli
from recollect.cli.records import CATEGORY_COLUMN, ID_COLUMN, MEMORY_COLUMN
from recollect.cli.table import Column, TableRow, print_table
from recollect.cli.terminal import bold, clean_lines, dim, print_json, print_line
from recollect.cli.texts import read_text_argument
from recollect.cli.traces import print_trace
from recollect.errors import InvalidInput
from recollect.model.result import Hit, RecallResult

_RECALL_SCORE = Column("SCORE", style="bold", right=True)
# How notes begin that tell what was done as planned; all others tell what failed.
_EXPECTED_NOTES = (
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
@search_options(min_limit=0)
@pass_cli
def recall(
    cli: CliContext,
    question: tuple[str, ...],
    messages: str | None,
    is_fact: bool | None,
    requires_tool: bool | None,
    explain: bool,
    options: SearchOptions,
) -> None:
    """Ask memory as a chat would, and show what goes into the prompt.

    QUESTION is what the user says; without it, what is piped in. With --messages the last user message is the
    question, and those before it complete it.
    """
    query = _read_messages(question, messages) if messages else read_text_argument(question, name="question")
    with cli.open() as memory:
        recalled = memory.recall(
            query, **cli.scope_args, **options, is_fact=is_fact, requires_tool=requires_tool, trace=explain
        )
        learned = memory.settings.fusion == "learned"
    if cli.json:
        print_json(recalled.to_dict())
        return
    _print_prompt(recalled, explain=explain)
    if explain:
        print_line()
        print_trace(recalled.hits, recalled.candidates, recalled.steps_us, learned=learned)
        return
    if recalled.hits:
        print_line()
        print_table(
            [_RECALL_SCORE, ID_COLUMN, CATEGORY_COLUMN, MEMORY_COLUMN], [_hit_row(hit, recalled) for hit in recalled]
        )
    for note in recalled.notes:
        if cli.verbose or not note.startswith(_EXPECTED_NOTES):
            print_line(dim(note), err=True)


def _read_messages(question: Sequence[str], file: str) -> Any:
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
        parsed = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"the messages are not JSON: {error}") from None
    if not isinstance(parsed, list):
        raise InvalidInput('the messages are not a JSON list, such as [{"role": "user", "content": "How much?"}]')
    return parsed


def _print_prompt(recalled: RecallResult, *, explain: bool) -> None:
    """What it came to, and the block that would go into the prompt."""
    print_line(bold(recalled.outcome), f": {recalled.reason}")
    if explain:
        for line in (*recalled.notes, *([f"query: {recalled.query}"] if recalled.query else ())):
            print_line(dim(line))
    if recalled.context.text:
        print_line()
        for line in clean_lines(recalled.context.text.rstrip("\n")):
            print_line(line)


def _hit_row(hit: Hit, recalled: RecallResult) -> TableRow:
    context = recalled.context
    remarks = (
        f"left out: {context.dropped[hit.id]}" if hit.id in context.dropped else "",
        f"cut: {context.cut[hit.id]}" if hit.id in context.cut else "",
        context.flagged.get(hit.id, ""),
    )
    return TableRow(
        (f"{hit.score:.2f}", hit.id, hit.record.category, hit.memory), notes=[note for note in remarks if note]
    )
