"""recollect search"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from recollect.cli.context import CliContext, Command, pass_cli
from recollect.cli.options import (
    AS_OF_OPTION,
    SearchOptions,
    WholeNumber,
    filter_options,
    limit_option,
    parse_moment,
    search_options,
)
from recollect.cli.rendering import (
    CATEGORY_COLUMN,
    CREATED_COLUMN,
    ID_COLUMN,
    MEMORY_COLUMN,
    format_short_time,
    print_record,
    print_trace,
)
from recollect.cli.streams import read_text_argument
from recollect.cli.table import Column, TableRow, print_table
from recollect.cli.terminal import bold, clean_lines, dim, print_json, print_line
from recollect.errors import InvalidInput, NotFound
from recollect.model.change import HistoryEntry
from recollect.model.memory import Status
from recollect.model.query import EVERYTHING, Filter
from recollect.model.result import Hit, RecallResult, SearchResult

if TYPE_CHECKING:
    from recollect.sync import Memory


_SEARCH_SCORE = Column("SCORE", style="bold", right=True)


@click.command(
    cls=Command,
    scope_options="user project session",
    examples=(
        'recollect search "How much can I spend in Hawaii?" --user alex',
        'recollect search "travel plans" --user alex --since 7d --where "importance>=0.5" --explain',
        'recollect search "travel plans" --user alex --as-of 2026-03-15',
    ),
)
@click.argument("query", nargs=-1)
@click.option("--explain", is_flag=True, help="Tell what became of every candidate and why, and what took how long.")
@search_options(min_limit=1)
@pass_cli
def search(cli: CliContext, query: tuple[str, ...], explain: bool, options: SearchOptions) -> None:
    """Find the memories that fit a question, best first.

    QUERY is the question; without it, what is piped in. Scores go from 0 to 1.
    """
    question = read_text_argument(query, name="query")
    with cli.open() as memory:
        result = memory.search(question, **cli.scope_args, **options, explain=explain, trace=explain)
        learned = memory.settings.fusion == "learned"
    if cli.json:
        print_json({**result.to_dict(), **(_trace_dict(result) if explain else {})})
        return
    for note in result.notes:
        print_line(dim(note), err=True)
    if not result.hits:
        _print_no_hits(cli, options)
    if explain:
        print_trace(result.hits, result.candidates, result.steps_us, learned=learned)
    elif result.hits:
        rows = [
            (f"{hit.score:.2f}", hit.id, format_short_time(hit.record.created_at), hit.record.category, hit.memory)
            for hit in result
        ]
        print_table([_SEARCH_SCORE, ID_COLUMN, CREATED_COLUMN, CATEGORY_COLUMN, MEMORY_COLUMN], rows)


def _trace_dict(result: SearchResult) -> dict[str, object]:
    return {
        "steps_us": {step: round(elapsed_us, 1) for step, elapsed_us in result.steps_us.items()},
        "notes": list(result.notes),
        "candidates": [each.to_dict() for each in result.candidates],
    }


def _print_no_hits(cli: CliContext, options: SearchOptions) -> None:
    narrowing = [
        *(["the filters"] if options["filters"] != EVERYTHING else []),
        *(["--min-score"] if options["min_score"] else []),
        *(["--as-of"] if options["as_of"] is not None else []),
    ]
    advice = "Try other words, or recollect list to see what there is"
    if narrowing:
        advice = f"Try it without {' and '.join(filter(None, [', '.join(narrowing[:-1]), narrowing[-1]]))}"
    other = "" if cli.user else "; --user ID looks at another user's"
    print_line(f"Nothing found for user {cli.user_id}. ", dim(f"{advice}{other}."))


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
    scope_options="user project session",
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


_STATUS_COLUMN = Column("STATUS", style="yellow")
_STATUSES = click.Choice([*(status.value for status in Status), "all"])
_STATUS_HELP = f"{', '.join(Status)} or all. [default: active]"


@click.command(
    "list",
    cls=Command,
    scope_options="user project session",
    examples=(
        "recollect list --user alex",
        "recollect list --user alex --category preference --since 2026-03-01 --limit 50",
        "recollect list --user alex --status forgotten",
        "recollect list --user alex --as-of 2026-03-15",
    ),
)
@limit_option("How many at once.")
@click.option("--cursor", metavar="CURSOR", help="Go on after the page that ended with this.")
@click.option("--status", type=_STATUSES, metavar="STATUS", default="active", help=_STATUS_HELP)
@click.option("--turns", is_flag=True, help="What was said as well.")
@click.option("--oldest", is_flag=True, help="Oldest first.")
@AS_OF_OPTION
@filter_options
@pass_cli
def list_(
    cli: CliContext,
    limit: int,
    cursor: str | None,
    status: str,
    turns: bool,
    oldest: bool,
    as_of: str | None,
    filter: Filter,
) -> None:
    """List memories, newest first."""
    statuses = tuple(Status) if status == "all" else (Status(status),)
    with cli.open() as memory:
        page = memory.get_all(
            **cli.scope_args,
            filters=filter,
            statuses=statuses,
            turns=turns,
            order="oldest" if oldest else "newest",
            limit=limit,
            cursor=cursor,
            as_of=parse_moment(as_of, name="--as-of"),
        )
    if cli.json:
        print_json(page.to_dict())
        return
    if not len(page):
        _print_no_memories(cli, is_filtered=filter != EVERYTHING or status != "active" or bool(cursor or as_of))
        return
    columns = [
        ID_COLUMN,
        CREATED_COLUMN,
        CATEGORY_COLUMN,
        *([_STATUS_COLUMN] if len(statuses) > 1 else []),
        MEMORY_COLUMN,
    ]
    rows = [
        (
            record.id,
            format_short_time(record.created_at),
            record.category,
            *([record.status] if len(statuses) > 1 else []),
            record.content,
        )
        for record in page
    ]
    print_table(columns, rows)
    if page.cursor:
        print_line(dim(f"There is more; go on with --cursor {page.cursor}"), err=True)


def _print_no_memories(cli: CliContext, *, is_filtered: bool) -> None:
    if is_filtered:
        print_line(f"User {cli.user_id} has nothing like that. ", dim("Try it with fewer filters, or --status all."))
    else:
        print_line(
            f"User {cli.user_id} has no memories yet. ",
            dim('Begin with: recollect add "..."; or see: recollect users'),
        )


@click.command(cls=Command, examples=("recollect show ID --user alex",))
@click.argument("memory_id", metavar="ID")
@AS_OF_OPTION
@pass_cli
def show(cli: CliContext, memory_id: str, as_of: str | None) -> None:
    """Show all there is to know about one memory."""
    with cli.open() as memory:
        record = memory.get(memory_id, user_id=cli.user_id, as_of=parse_moment(as_of, name="--as-of"))
    if cli.json:
        print_json(record.to_dict())
    else:
        print_record(record)


_MAX_CONTENT_CHARS = 100
_PAGE_SIZE = 100
_CHANGE_COLUMN = Column("CHANGE", style="bold", right=True)
_TIME_COLUMN = Column("WHEN", style="dim")
_KIND_COLUMN = Column("WHAT")
_AUTHOR_COLUMN = Column("WHO", optional=True)


@click.command(cls=Command, examples=("recollect history --user alex", "recollect history ID --user alex"))
@click.argument("memory_id", metavar="[ID]", required=False)
@limit_option("How many at once.")
@click.option("--before", type=WholeNumber(1), metavar="CHANGE", help="Only changes before this number.")
@pass_cli
def history(cli: CliContext, memory_id: str | None, limit: int, before: int | None) -> None:
    """Tell what happened: who, when, why and what was before.

    With the ID of a memory, only to that one. The number of a change is what undo takes.
    """
    with cli.open() as memory:
        entries = memory.history(memory_id, user_id=cli.user_id, limit=limit, before=before)
        texts = {} if cli.json or memory_id else _contents_by_change(memory, entries, cli.user_id)
    if cli.json:
        print_json({"results": [entry.to_dict() for entry in entries]})
        return
    if not entries:
        print_line(
            f"Nothing has happened to the memories of user {cli.user_id}", " before that." if before else " yet."
        )
        return
    rows = [
        TableRow(
            (str(entry.id), format_short_time(entry.at), entry.verb, entry.by.who, entry.memory_id),
            notes=[*texts.get(entry.id, ()), *_describe_change(entry)],
        )
        for entry in entries
    ]
    print_table([_CHANGE_COLUMN, _TIME_COLUMN, _KIND_COLUMN, _AUTHOR_COLUMN, ID_COLUMN], rows)
    if len(entries) == limit and entries[-1].id > 1:
        print_line(dim(f"There may be more; go on with --before {entries[-1].id}"), err=True)


def _contents_by_change(memory: Memory, entries: Sequence[HistoryEntry], user: str) -> dict[int, list[str]]:
    """What the memory of each line said after it; those that were erased say nothing."""
    texts: dict[int, list[str]] = {}
    first = min((entry.id for entry in entries), default=0)
    for id in {entry.memory_id for entry in entries}:
        with suppress(NotFound):
            content: Any = memory.get(id, user_id=user).content
            for line in _entries_since(memory, id, first, user):
                texts[line.id] = [str(content)[:_MAX_CONTENT_CHARS]]
                content = (line.before or {}).get("content", content)
    return texts


def _entries_since(memory: Memory, id: str, first: int, user: str) -> Iterator[HistoryEntry]:
    """All lines of a memory from the newest on, back to the first that counts."""
    before = None
    while lines := memory.history(id, user_id=user, limit=_PAGE_SIZE, before=before):
        yield from lines
        if (before := lines[-1].id) <= first or len(lines) < _PAGE_SIZE:
            return


def _describe_change(entry: HistoryEntry) -> list[str]:
    """What changed, in words, and why."""
    parts = [f"undoes {entry.undoes}"] if entry.undoes is not None else []
    if entry.before is not None:
        parts += [
            f"{name}: {_format_value(entry.before.get(name))} → {_format_value(after)}"
            for name, after in entry.after.items()
        ]
    if entry.by.why:
        parts.append(f"why: {entry.by.why}")
    return parts


def _format_value(value: Any) -> str:
    return "none" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
