"""recollect eval locomo, longmemeval, beam and realtalk"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from recollect.cli.command import Command
from recollect.cli.given import CliContext, SharedOption, configure_logging, pass_cli
from recollect.cli.numbers import WholeNumber
from recollect.cli.progress import Progress
from recollect.cli.records import pluralize
from recollect.cli.table import Column, print_table
from recollect.cli.terminal import bold, dim, print_json, print_line

_BENCHMARKS = {
    "locomo": ("LoCoMo", "locomo10.json"),
    "longmemeval": ("LongMemEval", "longmemeval_s.json"),
    "beam": ("BEAM", "beam.json.xz"),
    "realtalk": ("REALTALK", "realtalk.json"),
}
_STDOUT = "-"


class _Measurement(Command):
    """A command whose --json may name a file."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params = [each for each in self.params if not (isinstance(each, SharedOption) and each.name == "json")]


def benchmark_commands() -> Iterator[click.Command]:
    """One command for each set of conversations."""
    for name, (title, file) in _BENCHMARKS.items():
        yield _build_command(name, title, file)


def _build_command(name: str, title: str, file: str) -> click.Command:
    help = f"""Measure search on the conversations of {title}.

    PATH is the file or folder as it was published; .json may be packed as .json.xz. Every turn is remembered, every
    question is searched for, and a turn counts as found only if it is the very one the evidence names.
    """

    @click.command(
        name,
        cls=_Measurement,
        whose="",
        help=help,
        examples=(f"recollect eval {name} {file} --limit 1", f"recollect eval {name} {file} --json before.json"),
    )
    @click.argument("path", type=click.Path(path_type=Path))
    @click.option("--limit", type=WholeNumber(1), metavar="N", help="The first N conversations only.")
    @click.option(
        "--k", type=WholeNumber(1, 100), default=10, metavar="N", help="Where hit, all and NDCG cut. [default: 10]"
    )
    @click.option(
        "--json",
        "out",
        is_flag=False,
        flag_value=_STDOUT,
        metavar="[FILE]",
        help="Write every question to FILE as well; without a FILE, answer in JSON.",
    )
    @pass_cli
    def measure(cli: CliContext, path: Path, limit: int | None, k: int, out: str | None) -> None:
        _measure(cli, name, path, limit=limit, k=k, out=out or (_STDOUT if cli.json else None))

    return measure


def _measure(cli: CliContext, name: str, path: Path, *, limit: int | None, k: int, out: str | None) -> None:
    import asyncio

    from recollect.evaluation.benchmarks import load
    from recollect.evaluation.files import check_writable, write_result
    from recollect.evaluation.report import document, settings_in_force
    from recollect.evaluation.run import evaluate, steps_of

    configure_logging(verbose=cli.verbose)
    file = Path(out) if out not in (None, _STDOUT) else None
    if file is not None:
        check_writable(file)
    loaded = cli.load()
    conversations = load(name, path, limit=limit)
    with Progress("Evaluating", total=steps_of(conversations)) as progress:
        run = asyncio.run(evaluate(conversations, loaded.settings, k=k, progress=progress))
    result = document(run, benchmark=name, file=path.name, settings=settings_in_force(loaded))
    for note, times in result["notes"].items():
        print_line(f"warning: {note} ({pluralize(times, 'search', 'searches')})", err=True)
    if out == _STDOUT:
        print_json(result)
        return
    _print_result(result)
    if file is not None:
        write_result(file, result)
        print_line(
            dim(f"Every question is in {file}; recollect eval compare holds two such files against each other.")
        )


def _print_result(result: Mapping[str, Any]) -> None:
    title, k = _BENCHMARKS[result["benchmark"]][0], result["k"]
    corpus = f"{pluralize(result['turns'], 'turn')} of {pluralize(result['conversations'], 'conversation')}"
    print_line(bold(title), f": {pluralize(result['scored'], 'question')} on {corpus}")
    print_line(dim(", ".join(f"{name} {value}" for name, value in result["settings"].items())))
    if result["without_evidence"]:
        print_line(dim(f"{pluralize(result['without_evidence'], 'question')} without evidence cannot be scored."))
    print_line()
    _print_categories(result["categories"], result["headline"], k)
    print_line()
    for name, text in _figures(result):
        print_line(dim(name.ljust(12)), text)


def _print_categories(categories: list[dict[str, Any]], headline: Mapping[str, Any], k: int) -> None:
    marks = ("R@1", "R@5", "R@10", "R@20", f"hit@{k}", f"all@{k}", "MRR", f"NDCG@{k}")
    spare = {"R@1", "R@20", f"all@{k}"}
    columns = [
        Column("CATEGORY", flexible=True),
        Column("N", right=True),
        *(Column(mark.upper(), right=True, optional=mark in spare) for mark in marks),
    ]
    named = [(row["category"] + ("" if row["headline"] else " *"), row) for row in categories]
    rows = [
        (name, f"{row['n']:,}", *(f"{row[mark]:.3f}" for mark in marks))
        for name, row in [*named, ("all", headline)]
        if row["n"]
    ]
    print_table(columns, rows)
    if any(not row["headline"] for row in categories):
        print_line(dim("* is no part of all: what counts as found there looks like an answer and is none."))


def _figures(result: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The other figures, each with what it means."""
    search, fresh, abstention = result["search_ms"], result["freshness"], result["abstention"]
    yield "search", f"{search['p50']:.2f} ms for half of the questions, {search['p95']:.2f} ms for 95 %"
    yield "index", f"{result['index_ms_per_turn']:.2f} ms a turn"
    yield "tokens", f"{result['tokens_in_top']:,.0f} in the first {result['k']} hits, at four characters each"
    if fresh:
        share, questions = 100 * fresh["newest_first"], pluralize(fresh["n"], "question")
        yield "freshness", f"the newest statement stands above the older ones in {share:.1f} % of {questions}"
    if abstention:
        returned = f"{abstention['mean_returned']:.1f} ids returned for each"
        area = "" if abstention["auroc"] is None else f"; AUROC of the best score {abstention['auroc']:.3f}"
        yield "abstention", f"{pluralize(abstention['probes'], 'probe')} that nothing answers, {returned}{area}"
