"""recollect search, recall, list, show, graph and history."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from recollect.cli.context import CliContext, command, to_results, usage_error
from recollect.cli.options import (
    AS_OF_OPTION,
    SearchOptions,
    WholeNumber,
    filter_options,
    limit_option,
    parse_moment,
    read_file_argument,
    read_text_argument,
    search_options,
)
from recollect.cli.output import (
    CATEGORY_COLUMN,
    CREATED_COLUMN,
    ID_COLUMN,
    MEMORY_COLUMN,
    SCORE_COLUMN,
    Column,
    TableRow,
    bold,
    clean_lines,
    dim,
    format_short_time,
    print_line,
    print_record,
    print_table,
    print_trace,
)
from recollect.errors import InvalidInput, NotFound
from recollect.model.change import HistoryEntry
from recollect.model.graph import DEFAULT_NODES, MAX_DEPTH, MAX_NODES, Graph, GraphNode, NodeKind
from recollect.model.memory import Status
from recollect.model.query import EVERYTHING, Filter
from recollect.model.result import Hit, RecallResult

if TYPE_CHECKING:
    from recollect.sync import Memory


@command(
    'recollect search "How much can I spend in Hawaii?" --user alex',
    'recollect search "travel plans" --user alex --since 7d --where "importance>=0.5" --explain',
    'recollect search "travel plans" --user alex --as-of 2026-03-15',
    scope="user project session",
)
@click.argument("query", nargs=-1)
@click.option(
    "--explain",
    is_flag=True,
    help="Print the scores of every candidate, why it was dropped or selected, and the step times.",
)
@search_options(min_limit=1)
def search(cli: CliContext, query: tuple[str, ...], explain: bool, options: SearchOptions) -> None:
    """Find the memories that match a question, best first.

    QUERY is the question; without it, standard input is read. Scores are between 0 and 1.
    """
    question = read_text_argument(query, name="query")
    with cli.open() as memory:
        result = memory.search(question, **cli.scope_args, **options, explain=explain, trace=explain)
        learned = memory.settings.fusion == "learned"
    trace = {
        "steps_us": {step: round(elapsed_us, 1) for step, elapsed_us in result.steps_us.items()},
        "notes": list(result.notes),
        "candidates": [each.to_dict() for each in result.candidates],
    }
    if cli.replied({**result.to_dict(), **(trace if explain else {})}):
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
        print_table([SCORE_COLUMN, ID_COLUMN, CREATED_COLUMN, CATEGORY_COLUMN, MEMORY_COLUMN], rows)


def _print_no_hits(cli: CliContext, options: SearchOptions) -> None:
    filters = "the filters" if options["filters"] != EVERYTHING else ""
    narrowing = [filters, "--min-score" if options["min_score"] else "", "--as-of" if options["as_of"] else ""]
    *first, last = [each for each in narrowing if each] or [""]
    advice = "Try other words, or recollect list to see what there is"
    if last:
        advice = f"Try it without {' and '.join(filter(None, [', '.join(first), last]))}"
    other = "" if cli.user else "; --user ID selects another user"
    print_line(f"Nothing found for user {cli.user_id}. ", dim(f"{advice}{other}."))


# Notes that begin so report the normal course; all others report a failure.
_EXPECTED_NOTES = tuple(
    "searched: |the question stands alone|vague, and |terms of |completed by |an answer imagined by ".split("|")
)


@command(
    'recollect recall "What is my budget for the trip?" --user alex',
    'recollect recall "What is my budget for the trip?" --user alex --preset semantic-router --explain',
    """echo '[{"role": "user", "content": "How much?"}]' | recollect recall --messages - --user alex""",
    scope="user project session",
)
@click.argument("question", nargs=-1)
@click.option("--messages", metavar="FILE", help="A JSON list of chat messages, or - for standard input.")
@click.option("--is-fact/--is-no-fact", default=None, help="Whether it asks for general knowledge.")
@click.option("--requires-tool/--requires-no-tool", default=None, help="Whether a tool will answer it.")
@click.option("--explain", is_flag=True, help="Print the decision, every candidate with scores, and step times.")
@search_options(min_limit=0)
def recall(
    cli: CliContext,
    question: tuple[str, ...],
    messages: str | None,
    is_fact: bool | None,
    requires_tool: bool | None,
    explain: bool,
    options: SearchOptions,
) -> None:
    """Recall memories as a chat does, and print the block for the prompt.

    QUESTION is the user's message; without it, standard input is read. With --messages, the last user message is the
    question, and the earlier ones complete it.
    """
    query = _read_messages(question, messages) if messages else read_text_argument(question, name="question")
    with cli.open() as memory:
        recalled = memory.recall(
            query, **cli.scope_args, **options, is_fact=is_fact, requires_tool=requires_tool, trace=explain
        )
        learned = memory.settings.fusion == "learned"
    if cli.replied(recalled.to_dict()):
        return
    _print_prompt(recalled, explain=explain)
    if explain:
        print_line()
        print_trace(recalled.hits, recalled.candidates, recalled.steps_us, learned=learned)
        return
    if recalled.hits:
        print_line()
        columns = [SCORE_COLUMN, ID_COLUMN, CATEGORY_COLUMN, MEMORY_COLUMN]
        print_table(columns, [_hit_row(hit, recalled) for hit in recalled])
    for note in recalled.notes:
        if cli.verbose or not note.startswith(_EXPECTED_NOTES):
            print_line(dim(note), err=True)


def _read_messages(question: Sequence[str], file: str) -> Any:
    """Return the list of messages of a JSON file; their shape is checked by the API."""
    if question:
        raise usage_error("Give a QUESTION or --messages, not both.")
    try:
        parsed = json.loads(read_file_argument(file))
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"the messages are not JSON: {error}") from None
    if not isinstance(parsed, list):
        raise InvalidInput('the messages are not a JSON list, such as [{"role": "user", "content": "How much?"}]')
    return parsed


def _print_prompt(recalled: RecallResult, *, explain: bool) -> None:
    """Print the outcome and the block for the prompt."""
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
    cells = (f"{hit.score:.2f}", hit.id, hit.record.category, hit.memory)
    return TableRow(cells, notes=[note for note in remarks if note])


@command(
    "recollect list --user alex",
    "recollect list --user alex --category preference --since 2026-03-01 --limit 50",
    "recollect list --user alex --status forgotten",
    "recollect list --user alex --as-of 2026-03-15",
    scope="user project session",
    name="list",
)
@limit_option()
@click.option("--cursor", metavar="CURSOR", help="Continue after the page that ended with this cursor.")
@click.option(
    "--status",
    type=click.Choice([*(status.value for status in Status), "all"]),
    metavar="STATUS",
    default="active",
    help=f"{', '.join(Status)} or all. [default: active]",
)
@click.option("--turns", is_flag=True, help="Include turns.")
@click.option("--oldest", is_flag=True, help="Oldest first.")
@AS_OF_OPTION
@filter_options
def list_(
    cli: CliContext, limit: int, cursor: str | None, status: str, turns: bool, oldest: bool, as_of: str | None,
    filter: Filter,
) -> None:  # fmt: skip
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
    if cli.replied(page.to_dict()):
        return
    if not len(page):
        if filter != EVERYTHING or status != "active" or cursor or as_of:
            hint = "Try it with fewer filters, or --status all."
            print_line(f"User {cli.user_id} has no such memories. ", dim(hint))
        else:
            hint = 'Begin with: recollect add "..."; or see: recollect users'
            print_line(f"User {cli.user_id} has no memories yet. ", dim(hint))
        return
    shown = len(statuses) > 1
    columns = [ID_COLUMN, CREATED_COLUMN, CATEGORY_COLUMN, *[Column("STATUS", style="yellow")] * shown, MEMORY_COLUMN]
    rows = [
        (record.id, format_short_time(record.created_at), record.category, *[record.status] * shown, record.content)
        for record in page
    ]
    print_table(columns, rows)
    if page.cursor:
        print_line(dim(f"There is more; continue with --cursor {page.cursor}"), err=True)


@command("recollect show ID --user alex")
@click.argument("memory_id", metavar="ID")
@AS_OF_OPTION
def show(cli: CliContext, memory_id: str, as_of: str | None) -> None:
    """Show all fields of a memory."""
    with cli.open() as memory:
        record = memory.get(memory_id, user_id=cli.user_id, as_of=parse_moment(as_of, name="--as-of"))
    if not cli.replied(record.to_dict()):
        print_record(record)


_GRAPH_COLUMNS = [Column("KIND"), ID_COLUMN, Column("LABEL")]


@command(
    "recollect graph Anna --user alex",
    'recollect graph "New York" --user alex --depth 2',
    "recollect graph ID --user alex --superseded",
    scope="user project session",
)
@click.argument("around", nargs=-1, required=True, metavar="NAME")
@click.option(
    "--depth", type=WholeNumber(1, MAX_DEPTH), default=1, show_default=True, help="How many edges to follow."
)
@click.option(
    "--limit",
    type=WholeNumber(1, MAX_NODES),
    default=DEFAULT_NODES,
    show_default=True,
    help="How many nodes to show.",
)
@click.option("--superseded", is_flag=True, help="Include superseded memories.")
def graph(cli: CliContext, around: tuple[str, ...], depth: int, limit: int, superseded: bool) -> None:
    """Show what is related to a name, a key or a memory.

    NAME is a name that memories mention, a key, or the id of a memory. Below each memory are the nodes it leads to.
    """
    center = " ".join(around)
    with cli.open() as memory:
        result = memory.graph(center, **cli.scope_args, depth=depth, limit=limit, superseded=superseded)
    if cli.replied(result.to_dict()):
        return
    if not result.nodes:
        print_line(f"No memory of user {cli.user_id} mentions {center!r}. ", dim("Names are capitalised words."))
        return
    print_table(_GRAPH_COLUMNS, [_node_row(node, result) for node in result.nodes])
    if result.truncated:
        print_line(dim(f"Cut at --limit {limit}; it may be up to {MAX_NODES}."), err=True)


def _node_row(node: GraphNode, graph: Graph) -> TableRow:
    labels = {each.id: each.memory_id or each.label for each in graph.nodes}
    edges = [f"{edge.kind}: {labels[edge.target]}" for edge in graph.edges if edge.source == node.id]
    status = [] if node.status in (None, Status.ACTIVE) else [f"status: {node.status}"]
    label = "" if node.kind is NodeKind.MEMORY else node.project_id or ""
    return TableRow((node.kind, node.memory_id or label, node.label), notes=[*status, *edges])


_MAX_CONTENT_CHARS = 100
_PAGE_SIZE = 100
_HISTORY_COLUMNS = [
    Column("CHANGE", style="bold", right=True),
    Column("WHEN", style="dim"),
    Column("WHAT"),
    Column("WHO", optional=True),
    ID_COLUMN,
]


@command("recollect history --user alex", "recollect history ID --user alex")
@click.argument("memory_id", metavar="[ID]", required=False)
@limit_option()
@click.option("--before", type=WholeNumber(1), metavar="CHANGE", help="Only changes before this number.")
def history(cli: CliContext, memory_id: str | None, limit: int, before: int | None) -> None:
    """List changes: who, when, why and the previous values.

    With an ID, only the changes of that memory. undo takes the number of a change.
    """
    with cli.open() as memory:
        entries = memory.history(memory_id, user_id=cli.user_id, limit=limit, before=before)
        texts = {} if cli.json or memory_id else _contents_by_change(memory, entries, cli.user_id)
    if cli.replied(to_results(entries)):
        return
    if not entries:
        print_line(f"User {cli.user_id} has no changes", " before that." if before else " yet.")
        return
    rows = [
        TableRow(
            (str(entry.id), format_short_time(entry.at), entry.verb, entry.by.who, entry.memory_id),
            notes=[*texts.get(entry.id, ()), *_describe_change(entry)],
        )
        for entry in entries
    ]
    print_table(_HISTORY_COLUMNS, rows)
    if len(entries) == limit and entries[-1].id > 1:
        print_line(dim(f"There may be more; continue with --before {entries[-1].id}"), err=True)


def _contents_by_change(memory: Memory, entries: Sequence[HistoryEntry], user: str) -> dict[int, list[str]]:
    """Return the content of each entry's memory after the change; erased memories are missing."""
    texts: dict[int, list[str]] = {}
    first = min((entry.id for entry in entries), default=0)
    for id in {entry.memory_id for entry in entries}:
        with suppress(NotFound):
            content: Any = memory.get(id, user_id=user).content
            for entry in _entries_since(memory, id, first, user):
                texts[entry.id] = [str(content)[:_MAX_CONTENT_CHARS]]
                content = (entry.before or {}).get("content", content)
    return texts


def _entries_since(memory: Memory, id: str, first: int, user: str) -> Iterator[HistoryEntry]:
    """Yield the entries of a memory, newest first, back to the change `first`."""
    before = None
    while entries := memory.history(id, user_id=user, limit=_PAGE_SIZE, before=before):
        yield from entries
        if (before := entries[-1].id) <= first or len(entries) < _PAGE_SIZE:
            return


def _describe_change(entry: HistoryEntry) -> list[str]:
    """Return the changed fields and the reason."""
    parts = [f"undoes {entry.undoes}"] if entry.undoes is not None else []
    if entry.before is not None:
        parts += [
            f"{name}: {_format_value(entry.before.get(name))} → {_format_value(after)}"
            for name, after in entry.after.items()
        ]
    return [*parts, f"why: {entry.by.why}"] if entry.by.why else parts


def _format_value(value: Any) -> str:
    return "none" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
