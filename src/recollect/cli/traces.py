"""A search told step by step: how long each took, what became of every candidate, and what decided."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from recollect.cli.records import pluralize
from recollect.cli.table import Column, TableRow, print_table
from recollect.cli.terminal import bold, dim, print_line
from recollect.model.result import Hit, TracedCandidate

# Of those that were left out, the best are the ones somebody asks about.
_MAX_DROPPED_SHOWN = 10
_MAX_SIGNALS_SHOWN = 8
_SELECTED = "kept"

_TRACE_COLUMNS = (
    Column("RANK", style="dim", right=True),
    Column("SCORE", style="bold", right=True),
    Column("RELEVANCE", right=True),
    Column("MEANING", right=True, optional=True),
    Column("WORDS", right=True, optional=True),
    Column("RECENCY", right=True, optional=True),
    Column("FATE", style="yellow", flexible=True, lines=2),
    Column("MEMORY", flexible=True, lines=2),
)


def print_trace(
    hits: Sequence[Hit], candidates: Sequence[TracedCandidate], steps_us: Mapping[str, float], *, learned: bool
) -> None:
    """All of it; what the signals did only where the learned blend weighed them."""
    if candidates:
        _print_candidates(hits, candidates)
        print_line()
        best = next((each for each in candidates if each.fate == _SELECTED), None)
        if learned and best is not None:
            _print_signals(best)
            print_line()
    _print_steps(hits, steps_us)


def _print_candidates(hits: Sequence[Hit], candidates: Sequence[TracedCandidate]) -> None:
    why = {hit.id: hit.why for hit in hits}
    dropped = [number for number, each in enumerate(candidates) if each.fate != _SELECTED]
    hidden = set(dropped[_MAX_DROPPED_SHOWN:])
    print_table(
        _TRACE_COLUMNS,
        [_candidate_row(number, each, why) for number, each in enumerate(candidates) if number not in hidden],
    )
    if hidden:
        print_line(dim(f"{pluralize(len(hidden), 'candidate')} that fell are not shown; --json tells all."))


def _candidate_row(number: int, candidate: TracedCandidate, why: Mapping[str, str]) -> TableRow:
    scores = candidate.scores
    is_selected = candidate.fate == _SELECTED
    # A keyed fact goes into the prompt although the search left it out.
    decision = f"always given; {candidate.fate}" if not is_selected and candidate.id in why else candidate.fate
    return TableRow(
        (
            str(number + 1),
            f"{candidate.score:.2f}",
            f"{candidate.relevance:.2f}",
            *(f"{scores.get(part, 0.0):.2f}" for part in ("dense", "lexical", "recency")),
            decision,
            candidate.memory,
        ),
        notes=[note for note in (why.get(candidate.id, ""), candidate.id) if note] if is_selected else (),
    )


def _print_signals(best: TracedCandidate) -> None:
    """What did most for the best candidate that was kept."""
    from recollect.read.explain import break_down_score

    account = break_down_score(best.signals)
    print_line("What did most for the first that was kept, in log-odds:")
    columns = [Column("SIGNAL"), *(Column(title, right=True) for title in ("VALUE", "WEIGHT", "ADDS"))]
    rows = [
        (each.feature, f"{each.value:.2f}", f"{each.weight:.3f}", f"{each.odds:+.2f}")
        for each in account.strongest(_MAX_SIGNALS_SHOWN)
    ]
    print_table(columns, rows)
    own_odds = sum(each.odds for each in account.own)
    sums = f"all its signals {own_odds:+.2f}, the question {account.question:+.2f}, to begin with {account.base:+.2f}"
    total = own_odds + account.question + account.base
    memories = pluralize(account.memories, "memory", "memories")
    print_line(dim(f"{sums}: {total:+.2f}, which among {memories} counts as {account.odds:+.2f}"))


def _print_steps(hits: Sequence[Hit], steps_us: Mapping[str, float]) -> None:
    columns = [Column("STEP"), Column("MS", right=True)]
    print_table(columns, [(step, f"{elapsed_us / 1000:.3f}") for step, elapsed_us in steps_us.items()])
    print_line(bold(pluralize(len(hits), "hit")), " in ", bold(f"{sum(steps_us.values()) / 1000:.3f} ms"))
