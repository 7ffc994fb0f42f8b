"""recollect search"""

from __future__ import annotations

import click

from recollect.cli.command import Command
from recollect.cli.filters import filter_options
from recollect.cli.given import Given, pass_given
from recollect.cli.records import CATEGORY, CREATED, ID, MEMORY, counted, short_time
from recollect.cli.table import Column, Row, print_table
from recollect.cli.terminal import bold, dim, print_json, say
from recollect.cli.texts import given_text
from recollect.model.query import EVERYTHING, Filter
from recollect.model.result import SearchResult

_SCORE = Column("SCORE", style="bold", right=True)


@click.command(
    cls=Command,
    whose="user project session",
    examples=(
        'recollect search "How much can I spend in Hawaii?" --user alex',
        'recollect search "travel plans" --user alex --since 7d --where "importance>=0.5" --explain',
    ),
)
@click.argument("query", nargs=-1)
@click.option("--limit", "-n", type=click.IntRange(1, 1000), metavar="N", help="At most this many hits.")
@click.option("--min-score", type=click.FloatRange(0, 1), metavar="NUMBER", help="Leave out hits below this score.")
@click.option("--explain", is_flag=True, help="Tell how each hit got its score, and how long each step took.")
@filter_options
@pass_given
def search(
    given: Given, query: tuple[str, ...], limit: int | None, min_score: float | None, explain: bool, filter: Filter
) -> None:
    """Find the memories that fit a question, best first.

    QUERY is the question; without it, what is piped in. Scores go from 0 to 1.
    """
    asked = given_text(query, name="query")
    with given.open() as memory:
        result = memory.search(
            asked, **given.place, limit=limit, min_score=min_score, filters=filter, explain=explain
        )
    if given.json:
        print_json({**result.to_dict(), **({"steps_us": dict(result.steps_us)} if explain else {})})
        return
    for note in result.notes:
        say(dim(note), err=True)
    if not result.hits:
        _say_nothing(given, filtered=filter != EVERYTHING or bool(min_score))
    elif explain:
        _say_explained(result)
    else:
        rows = [
            (f"{hit.score:.2f}", hit.id, short_time(hit.record.created_at), hit.record.category, hit.memory)
            for hit in result
        ]
        print_table([_SCORE, ID, CREATED, CATEGORY, MEMORY], rows)


def _say_explained(result: SearchResult) -> None:
    parts = list(result[0].scores)
    columns = [_SCORE, *(Column(part.upper(), right=True) for part in parts), CATEGORY, MEMORY]
    rows = [
        Row(
            (
                f"{hit.score:.2f}",
                *(f"{hit.scores.get(part, 0):.2f}" for part in parts),
                hit.record.category,
                hit.memory,
            ),
            notes=(hit.why, hit.id),
        )
        for hit in result
    ]
    print_table(columns, rows)
    say()
    steps = ", ".join(f"{step} {taken / 1000:.2f}" for step, taken in result.steps_us.items())
    total = sum(result.steps_us.values()) / 1000
    say(bold(counted(len(result), "hit")), " in ", bold(f"{total:.2f} ms"), dim(f": {steps}"))


def _say_nothing(given: Given, *, filtered: bool) -> None:
    narrow = "Try it without the filters" if filtered else "Try other words, or recollect list to see what there is"
    other = "" if given.user else "; --user ID looks at another user's"
    say(f"Nothing found for user {given.user_id}. ", dim(f"{narrow}{other}."))
