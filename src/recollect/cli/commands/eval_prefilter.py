"""recollect eval prefilter"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from recollect.cli.command import Command
from recollect.cli.given import CliContext, pass_cli
from recollect.cli.numbers import WholeNumber
from recollect.cli.records import pluralize
from recollect.cli.table import Column, print_table
from recollect.cli.terminal import bold, dim, print_json, print_line


@click.command(
    cls=Command,
    whose="",
    examples=("recollect eval prefilter messages.jsonl", "recollect eval prefilter messages.jsonl --show 20"),
)
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--show", type=WholeNumber(0), default=0, metavar="N", help="Show N of the mistakes of each kind.")
@pass_cli
def prefilter(cli: CliContext, path: Path, show: int) -> None:
    """Measure how well recall knows when to search.

    PATH holds JSON Lines with text and search, 1 where memory is needed and 0 where it is not, and perhaps a source.
    A message that needs memory and is not searched loses the answer; a needless search costs milliseconds.
    """
    from recollect.evaluation.prefilter import decide_all, prefilter_document, read_messages

    result = prefilter_document(decide_all(read_messages(path)), file=path.name)
    if cli.json:
        print_json(result)
        return
    print_line(bold(pluralize(result["n"], "message")), f" of {result['file']}")
    print_line(dim("memory needed".ljust(16)), _describe_share(result["memory"], "searched"))
    print_line(dim("not needed".ljust(16)), _describe_share(result["other"], "skipped"))
    print_line()
    columns = [
        Column("SOURCE", flexible=True),
        Column("SHOULD"),
        Column("RIGHT", right=True),
        Column("OF", right=True),
        Column("SHARE", right=True, style="bold"),
    ]
    rows = [
        (row["source"], "search" if row["search"] else "skip", str(row["right"]), str(row["n"]), _format_percent(row))
        for row in result["sources"]
    ]
    print_table(columns, rows)
    for should in ("search", "skip"):
        _print_mistakes([each for each in result["mistakes"] if each["should"] == should], should, show)


def _print_mistakes(mistakes: list[dict[str, Any]], should: str, show: int) -> None:
    if not mistakes or not show:
        return
    print_line()
    wrong = "skipped, though memory is needed" if should == "search" else "searched, though it need not be"
    shown = f"; the first {show}" if len(mistakes) > show else ""
    print_line(f"{pluralize(len(mistakes), 'message')} {wrong}{shown}:")
    columns = [
        Column("MESSAGE", flexible=True, lines=2),
        Column("REASON", flexible=True),
        Column("SOURCE", optional=True),
    ]
    print_table(columns, [(each["text"], each["reason"], each["source"]) for each in mistakes[:show]])


def _describe_share(row: Mapping[str, Any], done: str) -> str:
    if row["share"] is None:
        return "no such message"
    return f"{_format_percent(row)} {done}, {row['right']:,} of {row['n']:,}"


def _format_percent(row: Mapping[str, Any]) -> str:
    return f"{100 * row['share']:.1f} %"
