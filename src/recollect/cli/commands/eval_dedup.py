"""recollect eval dedup"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from recollect.cli.command import Command
from recollect.cli.given import Given, listen_to_log, pass_given
from recollect.cli.numbers import Number, WholeNumber
from recollect.cli.progress import Progress
from recollect.cli.records import counted
from recollect.cli.table import Column, Row, print_table
from recollect.cli.terminal import bold, print_json, say

if TYPE_CHECKING:
    from recollect.settings import Settings


@click.command(cls=Command, whose="", examples=("recollect eval dedup", "recollect eval dedup pairs.csv --show 10"))
@click.argument("path", type=click.Path(path_type=Path), required=False)
@click.option(
    "--same",
    type=Number(0, 5),
    default=4.0,
    metavar="NUMBER",
    help="From this similarity on two sentences say the same. [default: 4]",
)
@click.option("--show", type=WholeNumber(0), default=0, metavar="N", help="Show N pairs that are merged wrongly.")
@pass_given
def dedup(given: Given, path: Path | None, same: float, show: int) -> None:
    """Measure how well repetitions are told from look-alikes.

    Without PATH, on the statements that ship: said again in other words, and with a number, a name, a date, a
    negation or something else changed. What counts is what resolving does with each pair.

    PATH is CSV without titles: a text, another, and how alike they are from 0 to 5. The embedder gives each pair a
    cosine. The best threshold is the one whose precision and recall are best together, precision counting twice: a
    wrong merge loses a memory.
    """
    import asyncio

    from recollect.evaluation.dedup import cosines, dedup_document
    from recollect.evaluation.pairs import read_pairs

    listen_to_log(verbose=given.verbose)
    settings = given.load().settings
    if path is None:
        _shipped(given, settings, show)
        return
    pairs = read_pairs(path)
    with Progress("Embedding", total=len(pairs)) as progress:
        embedder, cosine = asyncio.run(cosines(pairs, settings, progress=progress))
    told = dedup_document(pairs, cosine, file=path.name, embedder=embedder, same=same)
    if given.json:
        print_json(told)
        return
    _say(told)
    if show:
        # The nearest first, as a person would look at them; what a mere threshold would merge is in the JSON.
        _say_wrong(sorted(told["resolved"]["wrongly_merged"], key=lambda each: -float(each["cosine"])), show)


def _shipped(given: Given, settings: Settings, show: int) -> None:
    import asyncio

    from recollect.evaluation.dedup import cosines
    from recollect.evaluation.merging import decisions, merging_document
    from recollect.evaluation.statements import shipped_cases

    cases = shipped_cases()
    with Progress("Embedding", total=len(cases)) as progress:
        embedder, cosine = asyncio.run(cosines(cases, settings, progress=progress))
    found = decisions([(case.first, case.second) for case in cases], cosine)
    told = {"embedder": embedder, "n": len(cases), **merging_document(cases, found)}
    if given.json:
        print_json(told)
        return
    say(bold(counted(told["n"], "pair")), f" of the statements that ship; {told['embedder']}")
    say()
    _say_parts(told["parts"])
    if show:
        _say_pairs("wrongly merged", told["wrongly_merged"], show)
        _say_pairs("said again, but not seen as such", told["missed"], show)


def _say_parts(parts: list[dict[str, Any]]) -> None:
    columns = [
        Column("PART"),
        *(Column(name, right=True) for name in ("SAID AGAIN", "MERGED", "SHARE")),
        *(Column(kind["kind"].upper(), right=True) for kind in parts[0]["kinds"]),
    ]
    rows = [
        (
            row["part"],
            f"{row['same']:,}",
            f"{row['merged']:,}",
            "-" if row["share"] is None else f"{row['share']:.1%}",
            *(f"{kind['merged']:,} of {kind['n']:,}" for kind in row["kinds"]),
        )
        for row in parts
    ]
    print_table(columns, rows)
    say()
    say("Behind the share: pairs that differ in that, and how many of them were merged, which is wrong.")


def _say_pairs(what: str, pairs: list[dict[str, Any]], show: int) -> None:
    say()
    say(f"{counted(len(pairs), 'pair')} {what}" + (f"; the first {show}:" if len(pairs) > show else ""))
    for each in pairs[:show]:
        say(f"  {each['first']}")
        say(f"  {each['second']}")
        say()


def _say(told: Mapping[str, Any]) -> None:
    alike = f"{told['same']:,} say the same (similarity from {told['same_from']:g})"
    say(bold(counted(told["n"], "pair")), f" of {told['file']}, {alike}; {told['embedder']}")
    area = "" if told["auroc"] is None else f", AUROC {told['auroc']:.3f}"
    say(f"cosine and similarity: Spearman {told['spearman']:.3f}, Pearson {told['pearson']:.3f}{area}")
    say()
    best = told["best"]
    if best is None:
        say("No pair says the same, so there is no threshold to suggest; try a lower --same.")
        return
    marks = sorted([*told["thresholds"], best], key=lambda row: float(row["threshold"]))
    marks = [row for at, row in enumerate(marks) if not at or row["threshold"] != marks[at - 1]["threshold"]]
    columns = [
        Column("COSINE FROM"),
        *(Column(name, right=True) for name in ("MERGED", "WRONG", "PRECISION", "RECALL")),
    ]
    rows = [
        (
            f"{row['threshold']:.2f}" + (" best" if row["threshold"] == best["threshold"] else ""),
            f"{row['merged']:,}",
            f"{row['wrong']:,}",
            f"{row['precision']:.3f}",
            f"{row['recall']:.3f}",
        )
        for row in marks
    ]
    print_table(columns, rows)
    say()
    _say_dangerous(told, best["threshold"])
    done = told["resolved"]
    say()
    say(
        f"resolving merges {done['merged']:,}, {done['wrong']:,} of them wrongly, {done['dangerous']:,} with a "
        f"number, name or negation changed; precision {done['precision']:.3f}, recall {done['recall']:.3f}"
    )


def _say_dangerous(told: Mapping[str, Any], best: float) -> None:
    """The pairs that must not be merged though nearly all their words agree."""
    columns = [
        Column("DIFFERS IN"),
        Column("PAIRS", right=True),
        Column("NOT THE SAME", right=True),
        Column("MEAN COSINE", right=True),
        Column(f"MERGED FROM {best:.2f}", right=True, style="bold"),
    ]
    rows = [
        (
            row["kind"],
            f"{row['n']:,}",
            f"{row['different']:,}",
            "-" if row["mean_cosine"] is None else f"{row['mean_cosine']:.3f}",
            f"{row['wrong']:,}",
        )
        for row in told["differs_in"]
    ]
    print_table(columns, rows)


def _say_wrong(wrong: list[dict[str, Any]], show: int) -> None:
    say()
    if not wrong:
        say("No pair is wrongly merged by resolving.")
        return
    columns = [Column("COSINE", right=True), Column("SIMILARITY", right=True), Column("PAIR", flexible=True)]
    rows = [
        Row(
            (f"{each['cosine']:.2f}", f"{each['similarity']:g}", each["first"]),
            notes=(each["second"], *(["differs in " + ", ".join(each["differs_in"])] if each["differs_in"] else [])),
        )
        for each in wrong[:show]
    ]
    nearest = f"; the {show} nearest:" if len(wrong) > show else ":"
    say(f"{counted(len(wrong), 'pair')} wrongly merged by resolving{nearest}")
    print_table(columns, rows)
