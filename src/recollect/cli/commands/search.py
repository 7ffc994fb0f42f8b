"""recollect search"""

from __future__ import annotations

import click

from recollect.cli.asking import Asked, asking_options
from recollect.cli.command import Command
from recollect.cli.given import Given, pass_given
from recollect.cli.records import CATEGORY, CREATED, ID, MEMORY, short_time
from recollect.cli.table import Column, print_table
from recollect.cli.terminal import dim, print_json, say
from recollect.cli.texts import given_text
from recollect.cli.traces import say_trace
from recollect.model.query import EVERYTHING
from recollect.model.result import SearchResult

_SCORE = Column("SCORE", style="bold", right=True)


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
@asking_options(least=1)
@pass_given
def search(given: Given, query: tuple[str, ...], explain: bool, asked: Asked) -> None:
    """Find the memories that fit a question, best first.

    QUERY is the question; without it, what is piped in. Scores go from 0 to 1.
    """
    question = given_text(query, name="query")
    with given.open() as memory:
        result = memory.search(question, **given.place, **asked, explain=explain, trace=explain)
        learned = memory.settings.fusion == "learned"
    if given.json:
        print_json({**result.to_dict(), **(_trace(result) if explain else {})})
        return
    for note in result.notes:
        say(dim(note), err=True)
    if not result.hits:
        _say_nothing(given, asked)
    if explain:
        say_trace(result.hits, result.candidates, result.steps_us, learned=learned)
    elif result.hits:
        rows = [
            (f"{hit.score:.2f}", hit.id, short_time(hit.record.created_at), hit.record.category, hit.memory)
            for hit in result
        ]
        print_table([_SCORE, ID, CREATED, CATEGORY, MEMORY], rows)


def _trace(result: SearchResult) -> dict[str, object]:
    return {
        "steps_us": {step: round(taken, 1) for step, taken in result.steps_us.items()},
        "notes": list(result.notes),
        "candidates": [each.to_dict() for each in result.candidates],
    }


def _say_nothing(given: Given, asked: Asked) -> None:
    narrowing = [
        *(["the filters"] if asked["filters"] != EVERYTHING else []),
        *(["--min-score"] if asked["min_score"] else []),
        *(["--as-of"] if asked["as_of"] is not None else []),
    ]
    narrow = "Try other words, or recollect list to see what there is"
    if narrowing:
        narrow = f"Try it without {' and '.join(filter(None, [', '.join(narrowing[:-1]), narrowing[-1]]))}"
    other = "" if given.user else "; --user ID looks at another user's"
    say(f"Nothing found for user {given.user_id}. ", dim(f"{narrow}{other}."))
