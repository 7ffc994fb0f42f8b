"""recollect eval recipe"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from recollect.cli.context import CliContext, Command, SharedOption, configure_logging, pass_cli
from recollect.cli.exit_codes import ExitCode
from recollect.cli.options import WholeNumber
from recollect.cli.progress import Progress
from recollect.cli.rendering import pluralize
from recollect.cli.table import Column, print_table, truncate
from recollect.cli.terminal import StyledText, bold, clean, dim, print_json, print_line, width

if TYPE_CHECKING:
    from recollect.recipes.run import RecipeCheck, RecipeReport


_MAX_RECALLED = 5
_INDENT = " " * 8


@click.command(
    cls=Command,
    scope_options="",
    examples=("recollect eval recipe recipe.yaml", "recollect eval recipe recipe.yaml --junit recipes.xml"),
)
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--junit", type=click.Path(path_type=Path), metavar="FILE", help="Also write the outcome as JUnit XML, for CI."
)
@pass_cli
def recipe(cli: CliContext, files: tuple[Path, ...], junit: Path | None) -> None:
    """Check what must and what must not be recalled.

    Each FILE is a YAML recipe: steps that store, remember, correct and forget, and questions with what must and must
    not come back. It runs on an empty memory of its own. The exit code is 1 if an expectation does not hold.
    """
    import asyncio

    from recollect.recipes.files import check_folder
    from recollect.recipes.parse import read_recipe
    from recollect.recipes.run import run_recipes, write_junit

    configure_logging(verbose=cli.verbose)
    settings = cli.load().settings
    # All are read before the first is run: a mistake in the last should not cost the time of the others.
    recipes = [read_recipe(file) for file in files]
    if junit is not None:
        check_folder(junit)
    reports = asyncio.run(
        run_recipes(recipes, settings, on_report=(lambda report: None) if cli.json else _print_recipe_report)
    )
    if junit is not None:
        write_junit(junit, reports)
    failed, total = sum(each.failed for each in reports), sum(len(each.checks) for each in reports)
    if cli.json:
        print_json({"ok": not failed, "recipes": [_report_dict(each) for each in reports]})
    elif failed:
        print_line(
            bold(f"{failed:,} of {pluralize(total, 'expectation')}"), f" {'does' if failed == 1 else 'do'} not hold."
        )
    else:
        print_line(f"All {total:,} expectations hold." if total > 1 else "The one expectation holds.")
    if failed:
        click.get_current_context().exit(ExitCode.UNEXPECTED)


def _print_recipe_report(report: RecipeReport) -> None:
    from recollect.recipes.run import complaint

    print_line(bold(report.recipe.name), dim(f"  {report.recipe.file}"))
    for _, group in groupby(report.checks, key=lambda check: check.step):
        checks = list(group)
        for check in checks:
            mark = StyledText("ok  ", "green") if check.passed else StyledText("fail", "red")
            print_line("  ", mark, f"  step {check.step}: {check}")
            if not check.passed:
                print_line(_INDENT, complaint(check))
        if not all(check.passed for check in checks):
            _print_recalled(checks[0])
    print_line()


def _print_recalled(check: RecipeCheck) -> None:
    """What came back instead, as far as it can be taken in at a glance."""
    columns = width()
    for place, each in enumerate(check.recalled[:_MAX_RECALLED], 1):
        line = f"{place}. {each.score:.2f}  {clean(each.text)}"
        print_line(_INDENT, dim(truncate(line, columns - len(_INDENT)) if columns else line))
    for note in check.notes:
        print_line(_INDENT, dim(note))
    if len(check.recalled) > _MAX_RECALLED:
        print_line(_INDENT, dim(f"and {len(check.recalled) - _MAX_RECALLED} more"))


def _report_dict(report: RecipeReport) -> dict[str, Any]:
    return {
        "file": str(report.recipe.file),
        "name": report.recipe.name,
        "failed": report.failed,
        "checks": [
            {
                "step": check.step,
                "question": check.question,
                "expected": "must" if check.expected.must else "must_not",
                "words": check.expected.words or None,
                "memory": check.expected.memory or None,
                "held": check.passed,
                "at": check.at or None,
                "notes": list(check.notes),
                "recalled": [
                    {"id": each.id, "memory": each.text, "score": round(each.score, 6)} for each in check.recalled
                ],
            }
            for check in report.checks
        ],
    }


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
        scope_options="",
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

    from evals.datasets import load
    from evals.report import document, settings_in_force
    from evals.run import evaluate, steps_of
    from recollect.recipes.files import check_writable, write_result

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


_COMPARISON_COLUMNS = (
    Column("A", right=True),
    Column("B", right=True),
    Column("B - A", right=True, style="bold"),
    Column("95 % INTERVAL", right=True),
    Column("N", right=True, optional=True),
    Column("VERDICT"),
)


@click.command(cls=Command, scope_options="", examples=("recollect eval compare before.json after.json",))
@click.argument("a", type=click.Path(path_type=Path))
@click.argument("b", type=click.Path(path_type=Path))
@pass_cli
def compare(cli: CliContext, a: Path, b: Path) -> None:
    """Tell whether one measurement is better than another.

    A and B are files that recollect eval wrote with --json FILE, of the same conversations. Each question is held
    against itself; the interval is that of a bootstrap over the questions. Where it holds 0 the verdict is unclear,
    and where no question came out otherwise it is the same.
    """
    from evals.metrics import compare as differences

    comparison = differences(a, b)
    if cli.json:
        print_json(comparison)
        return
    for name in ("a", "b"):
        print_line(
            bold(name.upper()), "  ", comparison[name]["file"], dim(f"  {_differing_settings(comparison, name)}")
        )
    unpaired = comparison["only_in_a"] + comparison["only_in_b"]
    missing = f"; {pluralize(unpaired, 'question')} that only one of them has are left out" if unpaired else ""
    print_line(dim(f"{pluralize(comparison['n'], 'question')} of {comparison['benchmark']}{missing}"))
    print_line()
    print_table(
        [Column("MARK"), *_COMPARISON_COLUMNS],
        [(row["mark"], *_comparison_cells(row)) for row in comparison["marks"]],
    )
    print_line()
    print_line(dim(f"{comparison['categories'][0]['mark']} by category:"))
    rows = [(row["category"], *_comparison_cells(row)) for row in comparison["categories"]]
    print_table([Column("CATEGORY", flexible=True), *_COMPARISON_COLUMNS], rows)


def _differing_settings(comparison: Mapping[str, Any], name: str) -> str:
    """The settings in which this one differs from the other."""
    own, other = comparison[name]["settings"], comparison["b" if name == "a" else "a"]["settings"]
    return ", ".join(f"{key} {value}" for key, value in own.items() if other.get(key) != value)


def _comparison_cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        f"{row['a']:.3f}",
        f"{row['b']:.3f}",
        f"{row['difference']:+.3f}",
        f"{row['low']:+.3f} to {row['high']:+.3f}",
        f"{row['n']:,}",
        _verdict(row),
    )


def _verdict(row: Mapping[str, Any]) -> str:
    if row["low"] == row["high"] == 0:
        # Not one question came out otherwise.
        return "the same"
    return "better" if row["low"] > 0 else "worse" if row["high"] < 0 else "unclear"


@click.command(
    cls=Command,
    scope_options="",
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
    from evals.prefilter import decide_all, prefilter_document, read_messages

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


class _InOrder(click.Group):
    """Lists its commands as they were added, the nearest to a user's own data first."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


@click.group(cls=_InOrder)
def eval_() -> None:
    """Measure how well it finds, on data of yours.

    Nothing of yours is read or changed: each measurement fills a ledger of its own in a folder that goes away. The
    settings in force count, such as the embedder, so that two setups can be compared.
    """


for each in (recipe, *benchmark_commands(), compare, prefilter):
    eval_.add_command(each)
