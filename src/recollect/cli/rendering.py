"""Memories as a person reads them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from recollect.cli.table import Column, TableRow, print_table
from recollect.cli.terminal import StyledText, bold, clean_lines, dim, print_line
from recollect.model.memory import MemoryRecord, Status
from recollect.model.result import Hit, TracedCandidate

ID_COLUMN = Column("ID", style="dim")
CREATED_COLUMN = Column("CREATED", style="dim", optional=True)
CATEGORY_COLUMN = Column("CATEGORY", optional=True)
MEMORY_COLUMN = Column("MEMORY", flexible=True, lines=2)


def format_short_time(at: datetime) -> str:
    """A time in a table, where the reader is."""
    return at.astimezone().strftime("%Y-%m-%d %H:%M")


def format_long_time(at: datetime) -> str:
    """A time in full."""
    return at.astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")


def print_record(record: MemoryRecord) -> None:
    """All of a memory: its words whole, then every field that is set."""
    for line in clean_lines(record.content):
        print_line(line)
    print_line()
    for name, value in _record_fields(record):
        print_line(
            dim(name.ljust(14)), StyledText(value, "yellow") if name == "status" and value != Status.ACTIVE else value
        )


def _record_fields(record: MemoryRecord) -> Iterator[tuple[str, str]]:
    values: dict[str, Any] = {
        "id": record.id,
        "user": record.scope.user,
        "project": record.scope.project,
        "session": record.scope.session,
        "level": record.level,
        "category": record.category,
        "type": record.type,
        "key": record.key,
        "value": record.value,
        "tags": ", ".join(record.tags),
        "importance": f"{record.importance:g}",
        "confidence": f"{record.confidence:g}",
        "source": record.source,
        "trust": record.trust,
        "status": record.status,
        "superseded by": record.superseded_by,
        "version": record.version,
        "created": record.created_at,
        "updated": record.updated_at if record.version > 1 else None,
        "occurred": record.occurred_at,
        "valid from": record.valid_from,
        "valid to": record.valid_to,
        "expires": record.expires_at,
        "last accessed": record.last_accessed_at,
        "access count": record.access_count,
        "evidence": ", ".join(record.evidence),
        "metadata": _format_json(record.metadata),
        "detail": _format_json(record.detail),
        "prompt digest": record.prompt_digest,
    }
    for name, value in values.items():
        if value:
            yield name, format_long_time(value) if isinstance(value, datetime) else str(value)


def _format_json(value: Any) -> str:
    return json.dumps(dict(value), ensure_ascii=False) if value else ""


def print_redacted(kinds: Sequence[str]) -> None:
    """What was kept out of a memory, if anything was."""
    if kinds:
        print_line(dim(f"  Kept out of it: {', '.join(kinds)}."))


def pluralize(number: int, singular: str, plural: str | None = None) -> str:
    """A number with its noun."""
    return f"{number:,} {singular if number == 1 else plural or singular + 's'}"


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
