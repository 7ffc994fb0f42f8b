"""Memories and search traces as text."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from recollect.cli.output import (
    Column,
    StyledText,
    TableRow,
    bold,
    clean_lines,
    dim,
    pluralize,
    print_line,
    print_table,
)
from recollect.model.memory import MemoryRecord, Status
from recollect.model.result import Hit, TracedCandidate

ID_COLUMN = Column("ID", style="dim")
CREATED_COLUMN = Column("CREATED", style="dim", optional=True)
CATEGORY_COLUMN = Column("CATEGORY", optional=True)
MEMORY_COLUMN = Column("MEMORY", flexible=True, lines=2)
SCORE_COLUMN = Column("SCORE", style="bold", right=True)


def print_record(record: MemoryRecord) -> None:
    """Print the whole text of a memory, then every field that is set."""
    for line in clean_lines(record.content):
        print_line(line)
    print_line()
    for name, value in record.to_dict().items():
        if value and name != "memory":
            is_inactive = name == "status" and value != Status.ACTIVE
            print_line(dim(name.ljust(18)), StyledText(_format_field(value), "yellow" if is_inactive else ""))


def _format_field(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def print_redacted(kinds: Sequence[str]) -> None:
    """Print which kinds of secrets were removed from a memory, if any."""
    if kinds:
        print_line(dim(f"  Kept out of it: {', '.join(kinds)}."))


# The best of the dropped candidates explain a missing hit.
_MAX_DROPPED_SHOWN = 10
_MAX_FEATURES_SHOWN = 8
_SELECTED = "selected"

_TRACE_COLUMNS = (
    Column("RANK", style="dim", right=True),
    SCORE_COLUMN,
    Column("RELEVANCE", right=True),
    Column("MEANING", right=True, optional=True),
    Column("WORDS", right=True, optional=True),
    Column("RECENCY", right=True, optional=True),
    Column("DECISION", style="yellow", flexible=True, lines=2),
    MEMORY_COLUMN,
)


def print_trace(
    hits: Sequence[Hit], candidates: Sequence[TracedCandidate], steps_us: Mapping[str, float], *, learned: bool
) -> None:
    """Print the candidates and the duration of each step; the strongest features only for the learned fusion."""
    if candidates:
        _print_candidates(hits, candidates)
        print_line()
        best = next((each for each in candidates if each.decision == _SELECTED), None)
        if learned and best is not None:
            _print_features(best)
            print_line()
    columns = [Column("STEP"), Column("MS", right=True)]
    print_table(columns, [(step, f"{elapsed_us / 1000:.3f}") for step, elapsed_us in steps_us.items()])
    print_line(bold(pluralize(len(hits), "hit")), " in ", bold(f"{sum(steps_us.values()) / 1000:.3f} ms"))


def _print_candidates(hits: Sequence[Hit], candidates: Sequence[TracedCandidate]) -> None:
    why = {hit.id: hit.why for hit in hits}
    dropped = [number for number, each in enumerate(candidates) if each.decision != _SELECTED]
    hidden = set(dropped[_MAX_DROPPED_SHOWN:])
    print_table(
        _TRACE_COLUMNS,
        [_candidate_row(number, each, why) for number, each in enumerate(candidates) if number not in hidden],
    )
    if hidden:
        print_line(dim(f"{pluralize(len(hidden), 'dropped candidate')} not shown; --json lists all."))


def _candidate_row(number: int, candidate: TracedCandidate, why: Mapping[str, str]) -> TableRow:
    is_selected = candidate.decision == _SELECTED
    # A keyed fact is put into the prompt even if the search drops it.
    decision = (
        f"always included; {candidate.decision}" if not is_selected and candidate.id in why else candidate.decision
    )
    parts = (candidate.score, candidate.relevance, *(candidate.scores.get(name, 0.0) for name in _SCORE_PARTS))
    return TableRow(
        (str(number + 1), *(f"{part:.2f}" for part in parts), decision, candidate.memory),
        notes=[note for note in (why.get(candidate.id, ""), candidate.id) if note] if is_selected else (),
    )


_SCORE_PARTS = ("dense", "lexical", "recency")


def _print_features(best: TracedCandidate) -> None:
    from recollect.service.service import break_down_score

    account = break_down_score(best.features)
    print_line("Strongest features of the first hit, in log-odds:")
    columns = [Column("FEATURE"), *(Column(title, right=True) for title in ("VALUE", "WEIGHT", "ADDS"))]
    rows = [
        (each.feature, f"{each.value:.2f}", f"{each.weight:.3f}", f"{each.odds:+.2f}")
        for each in account.strongest(_MAX_FEATURES_SHOWN)
    ]
    print_table(columns, rows)
    own_odds = sum(each.odds for each in account.own)
    total = own_odds + account.question + account.base
    memories = pluralize(account.memories, "memory", "memories")
    print_line(
        dim(
            f"all features {own_odds:+.2f}, question {account.question:+.2f}, base {account.base:+.2f}: "
            f"{total:+.2f}, which among {memories} counts as {account.odds:+.2f}"
        )
    )
