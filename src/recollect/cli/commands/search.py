"""recollect search"""

from __future__ import annotations

import click

from recollect.cli.asking import SearchOptions, search_options
from recollect.cli.command import Command
from recollect.cli.given import CliContext, pass_cli
from recollect.cli.records import CATEGORY_COLUMN, CREATED_COLUMN, ID_COLUMN, MEMORY_COLUMN, format_short_time
from recollect.cli.table import Column, print_table
from recollect.cli.terminal import dim, print_json, print_line
from recollect.cli.texts import read_text_argument
from recollect.cli.traces import print_trace
from recollect.model.query import EVERYTHING
from recollect.model.result import SearchResult

_SEARCH_SCORE = Column("SCORE", style="bold", right=True)


@click.command(
    cls=Command,
    whose="user project session",
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
