"""A search told step by step: how long each took, what became of every candidate, and what decided."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from recollect.cli.records import counted
from recollect.cli.table import Column, Row, print_table
from recollect.cli.terminal import bold, dim, say
from recollect.model.result import Hit, Traced

# Of those that were left out, the best are the ones somebody asks about.
_LEFT_OUT_SHOWN = 10
_SIGNALS_SHOWN = 8
_KEPT = "kept"

_COLUMNS = (
    Column("RANK", style="dim", right=True),
    Column("SCORE", style="bold", right=True),
    Column("RELEVANCE", right=True),
    Column("MEANING", right=True, optional=True),
    Column("WORDS", right=True, optional=True),
    Column("RECENCY", right=True, optional=True),
    Column("FATE", style="yellow", flexible=True, lines=2),
    Column("MEMORY", flexible=True, lines=2),
)


def say_trace(
    hits: Sequence[Hit], candidates: Sequence[Traced], steps_us: Mapping[str, float], *, learned: bool
) -> None:
    """All of it; what the signals did only where the learned blend weighed them."""
    if candidates:
        _say_candidates(hits, candidates)
        say()
        best = next((each for each in candidates if each.fate == _KEPT), None)
        if learned and best is not None:
            _say_signals(best)
            say()
    _say_steps(hits, steps_us)


def _say_candidates(hits: Sequence[Hit], candidates: Sequence[Traced]) -> None:
    why = {hit.id: hit.why for hit in hits}
    left_out = [number for number, each in enumerate(candidates) if each.fate != _KEPT]
    silent = set(left_out[_LEFT_OUT_SHOWN:])
    print_table(
        _COLUMNS,
        [_row(number, each, why) for number, each in enumerate(candidates) if number not in silent],
    )
    if silent:
        say(dim(f"{counted(len(silent), 'candidate')} that fell are not shown; --json tells all."))


def _row(number: int, candidate: Traced, why: Mapping[str, str]) -> Row:
    scores = candidate.scores
    kept = candidate.fate == _KEPT
    # A keyed fact goes into the prompt although the search left it out.
    fate = f"always given; {candidate.fate}" if not kept and candidate.id in why else candidate.fate
    return Row(
        (
            str(number + 1),
            f"{candidate.score:.2f}",
            f"{candidate.relevance:.2f}",
            *(f"{scores.get(part, 0.0):.2f}" for part in ("dense", "lexical", "recency")),
            fate,
            candidate.memory,
        ),
        notes=[note for note in (why.get(candidate.id, ""), candidate.id) if note] if kept else (),
    )


def _say_signals(best: Traced) -> None:
    """What did most for the best candidate that was kept."""
    from recollect.read.explain import account_of

    account = account_of(best.signals)
    say("What did most for the first that was kept, in log-odds:")
    columns = [Column("SIGNAL"), *(Column(title, right=True) for title in ("VALUE", "WEIGHT", "ADDS"))]
    rows = [
        (each.signal, f"{each.value:.2f}", f"{each.weight:.3f}", f"{each.odds:+.2f}")
        for each in account.strongest(_SIGNALS_SHOWN)
    ]
    print_table(columns, rows)
    own = sum(each.odds for each in account.own)
    told = f"all its signals {own:+.2f}, the question {account.question:+.2f}, to begin with {account.base:+.2f}"
    total = own + account.question + account.base
    among = counted(account.memories, "memory", "memories")
    say(dim(f"{told}: {total:+.2f}, which among {among} counts as {account.odds:+.2f}"))


def _say_steps(hits: Sequence[Hit], steps_us: Mapping[str, float]) -> None:
    columns = [Column("STEP"), Column("MS", right=True)]
    print_table(columns, [(step, f"{taken / 1000:.3f}") for step, taken in steps_us.items()])
    say(bold(counted(len(hits), "hit")), " in ", bold(f"{sum(steps_us.values()) / 1000:.3f} ms"))
