"""The commands of `recollect eval` that need this folder: benchmarks, compare and prefilter."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import click

from recollect.cli.commands.eval import PATH, eval_
from recollect.cli.context import CliContext, Command, SharedOption, command
from recollect.cli.options import WholeNumber
from recollect.cli.output import ProgressBar, dim, pluralize, print_json, print_line

_BENCHMARKS = {
    "locomo": ("LoCoMo", "locomo10.json"),
    "longmemeval": ("LongMemEval", "longmemeval_s.json"),
    "beam": ("BEAM", "beam.json.xz"),
    "realtalk": ("REALTALK", "realtalk.json"),
}
_STDOUT = "-"


class _BenchmarkCommand(Command):
    """A command with a --json option of its own, which may name a file."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params = [each for each in self.params if not (isinstance(each, SharedOption) and each.name == "json")]


def _add_benchmark(name: str, title: str, file: str) -> None:
    help = f"""Measure search on the conversations of {title}.

    PATH is the published file or folder; .json may be compressed as .json.xz. Every turn is remembered, every
    question is searched for, and only the turns that the evidence names count as found.
    """

    @command(
        f"recollect eval {name} {file} --limit 1",
        f"recollect eval {name} {file} --json before.json",
        scope="",
        group=eval_,
        name=name,
        cls=_BenchmarkCommand,
        help=help,
    )
    @click.argument("path", type=PATH)
    @click.option("--limit", type=WholeNumber(1), metavar="N", help="The first N conversations only.")
    @click.option(
        "--k", type=WholeNumber(1, 100), default=10, metavar="N", help="Cut of hit, all and NDCG. [default: 10]"
    )
    @click.option(
        "--json",
        "out",
        is_flag=False,
        flag_value=_STDOUT,
        metavar="[FILE]",
        help="Also write every question to FILE; without a FILE, print JSON.",
    )
    def measure(cli: CliContext, path: Path, limit: int | None, k: int, out: str | None) -> None:
        _measure(cli, name, path, limit=limit, k=k, out=out or (_STDOUT if cli.json else None))


for _name, (_title, _file) in _BENCHMARKS.items():
    _add_benchmark(_name, _title, _file)


def _measure(cli: CliContext, name: str, path: Path, *, limit: int | None, k: int, out: str | None) -> None:
    from evals import datasets, files, report, run, tables

    settings = cli.settings()
    file = Path(out) if out not in (None, _STDOUT) else None
    if file is not None:
        files.check_writable(file)
    conversations = datasets.load(name, path, limit=limit)
    with ProgressBar("Evaluating", total=run.steps_of(conversations)) as progress:
        evaluated = asyncio.run(run.evaluate(conversations, settings, k=k, progress=progress))
    result = report.document(evaluated, benchmark=name, file=path.name, settings=report.settings_in_force(cli.load()))
    for note, times in result["notes"].items():
        print_line(f"warning: {note} ({pluralize(times, 'search', 'searches')})", err=True)
    if out == _STDOUT:
        print_json(result)
        return
    tables.print_result(result, title=_BENCHMARKS[name][0])
    if file is not None:
        files.write_result(file, result)
        print_line(dim(f"Every question is in {file}; recollect eval compare compares two such files."))


@command("recollect eval compare before.json after.json", scope="", group=eval_)
@click.argument("a", type=PATH)
@click.argument("b", type=PATH)
def compare(cli: CliContext, a: Path, b: Path) -> None:
    """Compare two measurements of the same conversations.

    A and B are files that recollect eval wrote with --json FILE. Questions are compared one by one; the interval is
    that of a bootstrap over the questions. If it contains 0, the verdict is unclear; if no question differs, it is
    the same.
    """
    from evals import metrics, tables

    comparison = metrics.compare(a, b)
    if cli.json:
        print_json(comparison)
    else:
        tables.print_comparison(comparison)


@command(
    "recollect eval prefilter messages.jsonl",
    "recollect eval prefilter messages.jsonl --show 20",
    scope="",
    group=eval_,
)
@click.argument("path", type=PATH)
@click.option("--show", type=WholeNumber(0), default=0, metavar="N", help="Print N mistakes of each kind.")
def prefilter(cli: CliContext, path: Path, show: int) -> None:
    """Measure how well recall decides when to search.

    PATH has JSON Lines with text, search (1 if memory is needed, 0 if not) and optionally source. A message that
    needs memory and is not searched loses the answer; a needless search costs milliseconds.
    """
    from evals import tables
    from evals.prefilter import decide_all, prefilter_document, read_messages

    result = prefilter_document(decide_all(read_messages(path)), file=path.name)
    if cli.json:
        print_json(result)
    else:
        tables.print_prefilter(result, show=show)
