"""Tables for the results of evaluations, as `recollect eval` prints them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from recollect.cli.output import Column, bold, dim, pluralize, print_line, print_table


def print_result(result: Mapping[str, Any], *, title: str) -> None:
    """Print the scores by category and the other figures of a benchmark."""
    k = result["k"]
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
        print_line(dim("* is not part of all: its evidence looks like an answer, but is none."))


def _figures(result: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the names and texts of the other figures."""
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


def print_comparison(comparison: Mapping[str, Any]) -> None:
    """Print the differences of two measurements, with their intervals and verdicts."""
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
    """Return the settings in which a measurement differs from the other."""
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
        # Every question had the same result.
        return "the same"
    return "better" if row["low"] > 0 else "worse" if row["high"] < 0 else "unclear"


def print_prefilter(result: Mapping[str, Any], *, show: int) -> None:
    """Print the shares of right decisions, and `show` mistakes of each kind."""
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
