"""recollect eval dedup"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from recollect.cli.command import Command
from recollect.cli.given import Given, listen_to_log, pass_given
from recollect.cli.numbers import Number, WholeNumber
from recollect.cli.progress import Progress
from recollect.cli.records import counted
from recollect.cli.table import Column, Row, print_table
from recollect.cli.terminal import bold, print_json, say


@click.command(
    cls=Command, whose="", examples=("recollect eval dedup pairs.csv", "recollect eval dedup pairs.csv --show 10")
)
@click.argument("path", type=click.Path(path_type=Path))
@click.option(
    "--same",
    type=Number(0, 5),
    default=4.0,
    metavar="NUMBER",
    help="From this similarity on two sentences say the same. [default: 4]",
)
@click.option("--show", type=WholeNumber(0), default=0, metavar="N", help="Show N pairs that are wrongly merged.")
@pass_given
def dedup(given: Given, path: Path, same: float, show: int) -> None:
    """Measure how well repetitions are told from look-alikes.

    PATH is CSV without titles: a text, another, and how alike they are from 0 to 5. The embedder of the settings
    gives each pair a cosine. The best threshold is the one whose precision and recall are best together, precision
    counting twice: a wrong merge loses a memory.
    """
    import asyncio

    from recollect.evaluation.dedup import cosines, dedup_document
    from recollect.evaluation.pairs import read_pairs

    listen_to_log(verbose=given.verbose)
    settings = given.load().settings
    pairs = read_pairs(path)
    with Progress("Embedding", total=len(pairs)) as progress:
        embedder, cosine = asyncio.run(cosines(pairs, settings, progress=progress))
    told = dedup_document(pairs, cosine, file=path.name, embedder=embedder, same=same)
    if given.json:
        print_json(told)
        return
    _say(told)
    if show:
        _say_wrong(told["wrongly_merged"], show)


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
        say("No pair is wrongly merged.")
        return
    columns = [Column("COSINE", right=True), Column("SIMILARITY", right=True), Column("PAIR", flexible=True)]
    rows = [
        Row(
            (f"{each['cosine']:.2f}", f"{each['similarity']:g}", each["first"]),
            notes=(each["second"], *(["differs in " + ", ".join(each["differs_in"])] if each["differs_in"] else [])),
        )
        for each in wrong[:show]
    ]
    say(f"{counted(len(wrong), 'pair')} wrongly merged" + (f"; the {show} nearest:" if len(wrong) > show else ":"))
    print_table(columns, rows)
