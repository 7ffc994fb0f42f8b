"""Terminal output: escaped text, colours, tables, progress bars, JSON, memories and search traces."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TextIO

from recollect.frozen_dataclass import frozen_dataclass

if TYPE_CHECKING:
    from rich.progress import Progress

    from recollect.model.memory import MemoryRecord
    from recollect.model.result import Hit, TracedCandidate


# Control characters, line separators, bidirectional controls and lone surrogates.
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_UNSAFE_IN_JSON = re.compile("[\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}
_colours_enabled = True


class StyledText(NamedTuple):
    """Text in one style."""

    text: str
    style: str = ""


def dim(text: object) -> StyledText:
    """Return secondary text: ids, times, hints."""
    return StyledText(str(text), "dim")


def bold(text: object) -> StyledText:
    return StyledText(str(text), "bold")


def clean(text: str) -> str:
    """Return the text on one line, with terminal control characters escaped."""
    if "\n" in text or "\r" in text:
        # A pattern that also matches the surrounding space takes quadratic time on long runs of it.
        text = " ".join(line.strip() for line in re.split(r"[\r\n]+", text))
    return _UNSAFE.sub(_escape_character, text.replace("\t", " "))


def clean_lines(text: str) -> list[str]:
    return [clean(line.expandtabs(4)) for line in re.split(r"\r\n|\r|\n", text)]


def _escape_character(match: re.Match[str]) -> str:
    code = ord(match.group())
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def enable_colours(enabled: bool) -> None:
    """Allow or forbid colours on terminals."""
    global _colours_enabled
    _colours_enabled = enabled


def has_colours(stream: TextIO) -> bool:
    """Return whether the stream is a terminal and colours are enabled."""
    return _colours_enabled and stream.isatty()


def print_line(*pieces: str | StyledText, err: bool = False) -> None:
    """Write one line to standard output, or to standard error."""
    stream = sys.stderr if err else sys.stdout
    stream.write("".join(_render(piece, stream) for piece in pieces).rstrip() + "\n")


def _render(piece: str | StyledText, stream: TextIO) -> str:
    text, style = (piece, "") if isinstance(piece, str) else piece
    if not style or not text or not has_colours(stream):
        return clean(text)
    return f"\x1b[{_STYLES[style]}m{clean(text)}\x1b[0m"


def print_json(document: Any) -> None:
    """Write a JSON document on one line, with terminal control characters escaped."""
    is_utf8 = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
    sys.stdout.write(json_text(document, ascii_only=not is_utf8) + "\n")


def json_text(document: Any, *, ascii_only: bool = False) -> str:
    """Return a JSON document as one line that is safe to print."""
    text = json.dumps(document, ensure_ascii=ascii_only)
    return _UNSAFE_IN_JSON.sub(lambda match: f"\\u{ord(match.group()):04x}", text)


def terminal_width() -> int | None:
    """Return the number of columns; None if standard output is no terminal, where nothing is cut."""
    return max(40, shutil.get_terminal_size().columns) if sys.stdout.isatty() else None


def pluralize(number: int, singular: str, plural: str | None = None) -> str:
    return f"{number:,} {singular if number == 1 else plural or singular + 's'}"


def format_short_time(at: datetime) -> str:
    """Return a local time to the minute."""
    return at.astimezone().strftime("%Y-%m-%d %H:%M")


_GAP = 2
_NOTE_INDENT = " " * 7
_MIN_FLEXIBLE_WIDTH = 24


@frozen_dataclass
class Column:
    """A column of a table.

    If the terminal is too narrow, `optional` columns are dropped, then `flexible` ones shrink and wrap to `lines`.
    """

    title: str
    style: str = ""
    right: bool = False
    flexible: bool = False
    optional: bool = False
    lines: int = 1


@frozen_dataclass
class TableRow:
    """The cells of a row, and lines printed below it across the columns."""

    cells: Sequence[str]
    notes: Sequence[str] = ()


def print_table(columns: Sequence[Column], rows: Sequence[TableRow | Sequence[str]]) -> None:
    """Print the rows below their titles."""
    from rich.cells import cell_len

    table_rows = [row if isinstance(row, TableRow) else TableRow(row) for row in rows]
    texts = [[clean(cell) for cell in row.cells] for row in table_rows]
    natural = [max(map(cell_len, column)) for column in zip([each.title for each in columns], *texts, strict=True)]
    total = terminal_width()
    widths = _fit_columns(columns, natural, total)
    _print_cells(columns, widths, [StyledText(column.title, "dim") for column in columns])
    for row, cells in zip(table_rows, texts, strict=True):
        folded = [
            wrap(text, widths[position], column.lines) if position in widths else []
            for position, (column, text) in enumerate(zip(columns, cells, strict=True))
        ]
        for line in zip_longest(*folded, fillvalue=""):
            _print_cells(
                columns, widths, [StyledText(text, column.style) for text, column in zip(line, columns, strict=True)]
            )
        for note in row.notes:
            print_line(dim(truncate(_NOTE_INDENT + clean(note), total)))


def _fit_columns(columns: Sequence[Column], natural: Sequence[int], total: int | None) -> Mapping[int, int]:
    """Return the widths of the columns to show, by position."""
    widths = dict(enumerate(natural))
    while total is not None and (excess := sum(widths.values()) + _GAP * (len(widths) - 1) - total) > 0:
        flexible = {position: width for position, width in widths.items() if columns[position].flexible}
        available = sum(flexible.values()) - excess
        optional = [position for position in widths if columns[position].optional]
        if optional and available < min(sum(flexible.values()), _MIN_FLEXIBLE_WIDTH * len(flexible)):
            del widths[optional[-1]]
            continue
        # Narrow columns keep their width, wide ones share the rest.
        shares: dict[int, int] = {}
        for position in sorted(flexible, key=lambda position: flexible[position]):
            shares[position] = min(flexible[position], max(8, available // (len(flexible) - len(shares))))
            available -= shares[position]
        return widths | shares
    return widths


def _print_cells(columns: Sequence[Column], widths: Mapping[int, int], cells: Sequence[StyledText]) -> None:
    from rich.cells import cell_len

    pieces: list[str | StyledText] = []
    for position, width in widths.items():
        padding = " " * (width - cell_len(cells[position].text))
        gap = " " * _GAP if pieces else ""
        pieces += [gap + padding, cells[position]] if columns[position].right else [gap, cells[position], padding]
    # No padding after the last cell: another row may be very long.
    print_line(*(pieces if columns[max(widths)].right else pieces[:-1]))


def wrap(text: str, width: int, lines: int) -> list[str]:
    """Return the text in at most `lines` lines of a width; an ellipsis marks what is missing."""
    from rich.cells import cell_len

    if cell_len(text) <= width:
        return [text]
    from rich.console import Console
    from rich.text import Text

    # What cannot be shown is not wrapped: a memory may have a megabyte.
    visible = Text(text[: 2 * width * lines])
    folded = [line.plain.rstrip() for line in visible.wrap(Console(width=width), width)]
    return [*folded[: lines - 1], truncate(" ".join(folded[lines - 1 : lines + 1]), width)]


def truncate(text: str, width: int | None) -> str:
    """Return as much of the text as fits, with an ellipsis if it is cut; all of it if there is no width."""
    from rich.cells import cell_len, set_cell_size

    if width is None or cell_len(text) <= width:
        return text
    return set_cell_size(text[:width], width - 1).rstrip() + "…"


class ProgressBar:
    """Show progress on standard error, if that is a terminal, and remove it at the end.

    With a `total` it is a bar with an estimate of the remaining time, without one a count.
    """

    def __init__(self, label: str, *, total: int | None = None) -> None:
        self._label = label
        self._total = total
        self._progress: Progress | None = None

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
            from rich.progress import TimeRemainingColumn as TimeRemaining

            known = [BarColumn(30), MofNCompleteColumn(), TextColumn("{task.percentage:.0f} %")]
            counted = known if self._total else [TextColumn("{task.completed:,}")]
            ends = [TimeElapsedColumn(), *([TextColumn("left"), TimeRemaining()] if self._total else [])]
            self._progress = Progress(
                TextColumn("{task.description}"),
                *counted,
                *ends,
                console=Console(stderr=True),
                transient=True,
                # The command writes its own output meanwhile.
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._progress.start()
            self._task = self._progress.add_task(self._label, total=self._total)
        return self

    def __call__(self, done: int) -> None:
        """Show how many steps are done."""
        if self._progress is not None:
            self._progress.update(self._task, completed=done)

    def __exit__(self, *_: object) -> None:
        if self._progress is not None:
            self._progress.stop()


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
            is_inactive = name == "status" and value != "active"
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
