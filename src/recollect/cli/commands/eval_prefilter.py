"""recollect eval prefilter"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from recollect.cli.command import Command
from recollect.cli.given import Given, pass_given
from recollect.cli.numbers import WholeNumber
from recollect.cli.records import counted
from recollect.cli.table import Column, print_table
from recollect.cli.terminal import bold, dim, print_json, say


@click.command(
    cls=Command,
    whose="",
    examples=("recollect eval prefilter messages.jsonl", "recollect eval prefilter messages.jsonl --show 20"),
)
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--show", type=WholeNumber(0), default=0, metavar="N", help="Show N of the mistakes of each kind.")
@pass_given
def prefilter(given: Given, path: Path, show: int) -> None:
    """Measure how well recall knows when to search.

    PATH holds JSON Lines with text and search, 1 where memory is needed and 0 where it is not, and perhaps a source.
    A message that needs memory and is not searched loses the answer; a needless search costs milliseconds.
    """
    from recollect.evaluation.prefilter import decide_all, prefilter_document, read_messages

    told = prefilter_document(decide_all(read_messages(path)), file=path.name)
    if given.json:
        print_json(told)
        return
    say(bold(counted(told["n"], "message")), f" of {told['file']}")
    say(dim("memory needed".ljust(16)), _share(told["memory"], "searched"))
    say(dim("not needed".ljust(16)), _share(told["other"], "skipped"))
    say()
    columns = [
        Column("SOURCE", flexible=True),
        Column("SHOULD"),
        Column("RIGHT", right=True),
        Column("OF", right=True),
        Column("SHARE", right=True, style="bold"),
    ]
    rows = [
        (row["source"], "search" if row["search"] else "skip", str(row["right"]), str(row["n"]), _percent(row))
        for row in told["sources"]
    ]
    print_table(columns, rows)
    for should in ("search", "skip"):
        _say_mistakes([each for each in told["mistakes"] if each["should"] == should], should, show)


def _say_mistakes(mistakes: list[dict[str, Any]], should: str, show: int) -> None:
    if not mistakes or not show:
        return
    say()
    wrong = "skipped, though memory is needed" if should == "search" else "searched, though it need not be"
    shown = f"; the first {show}" if len(mistakes) > show else ""
    say(f"{counted(len(mistakes), 'message')} {wrong}{shown}:")
    columns = [
        Column("MESSAGE", flexible=True, lines=2),
        Column("REASON", flexible=True),
        Column("SOURCE", optional=True),
    ]
    print_table(columns, [(each["text"], each["reason"], each["source"]) for each in mistakes[:show]])


def _share(row: Mapping[str, Any], done: str) -> str:
    if row["share"] is None:
        return "no such message"
    return f"{_percent(row)} {done}, {row['right']:,} of {row['n']:,}"


def _percent(row: Mapping[str, Any]) -> str:
    return f"{100 * row['share']:.1f} %"
