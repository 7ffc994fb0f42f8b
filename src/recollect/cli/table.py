"""Aligned columns that fit the terminal."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from recollect.cli.terminal import StyledText, clean, dim, print_line, width

_GAP = 2
_MIN_FLEXIBLE_WIDTH = 24


@dataclass(frozen=True, slots=True)
class Column:
    """How one column looks, and what it does when space is short.

    A `flexible` column shrinks and shows at most `lines` lines; an `optional` one leaves before that gets too narrow.
    """

    title: str
    style: str = ""
    right: bool = False
    flexible: bool = False
    optional: bool = False
    lines: int = 1


@dataclass(frozen=True, slots=True)
class TableRow:
    """The cells of a row, and lines that stand below it across the columns."""

    cells: Sequence[str]
    notes: Sequence[str] = ()


def print_table(columns: Sequence[Column], rows: Sequence[TableRow | Sequence[str]]) -> None:
    """Print the rows under their titles; without a terminal nothing is cut."""
    table_rows = [row if isinstance(row, TableRow) else TableRow(row) for row in rows]
    table_rows = [replace(row, cells=[clean(cell) for cell in row.cells]) for row in table_rows]
    natural = [
        max([display_width(column.title), *(display_width(row.cells[position]) for row in table_rows)])
        for position, column in enumerate(columns)
    ]
    visible, widths = _fit_columns(columns, natural, width())
    print_line(
        *_format_line(
            [dim(columns[position].title) for position in visible],
            [columns[position] for position in visible],
            widths,
        )
    )
    for row in table_rows:
        for pieces in _row_lines(row, columns, visible, widths):
            print_line(*pieces)


def _fit_columns(columns: Sequence[Column], natural: Sequence[int], total: int | None) -> tuple[list[int], list[int]]:
    """Which columns are shown, and how wide: flexible ones give way, optional ones leave before that hurts."""
    visible = list(range(len(columns)))
    while total is not None:
        flexible = [position for position in visible if columns[position].flexible]
        fixed = sum(natural[position] for position in visible if position not in flexible) + _GAP * (len(visible) - 1)
        flexible_width = sum(natural[position] for position in flexible)
        if fixed + flexible_width <= total:
            break
        available = total - fixed
        removed = next((position for position in reversed(visible) if columns[position].optional), None)
        if available < min(flexible_width, _MIN_FLEXIBLE_WIDTH * len(flexible)) and removed is not None:
            visible.remove(removed)
            continue
        if not flexible:
            break
        shares = {position: max(8, available * natural[position] // flexible_width) for position in flexible}
        return visible, [shares.get(position, natural[position]) for position in visible]
    return visible, [natural[position] for position in visible]


def _row_lines(
    row: TableRow, columns: Sequence[Column], visible: list[int], widths: list[int]
) -> Iterator[list[StyledText]]:
    cells = [
        _wrap(row.cells[position], size, columns[position].lines)
        for position, size in zip(visible, widths, strict=True)
    ]
    for number in range(max(map(len, cells))):
        line = [
            StyledText(cell[number] if number < len(cell) else "", columns[position].style)
            for position, cell in zip(visible, cells, strict=True)
        ]
        yield _format_line(line, [columns[position] for position in visible], widths)
    for note in row.notes:
        available = width()
        yield [dim("       " + (truncate(clean(note), available - 7) if available else clean(note)))]


def _format_line(cells: Sequence[StyledText], columns: Sequence[Column], widths: Sequence[int]) -> list[StyledText]:
    pieces: list[StyledText] = []
    for cell, column, size in zip(cells, columns, widths, strict=True):
        padding = " " * (size - display_width(cell.text))
        gap = " " * _GAP if pieces else ""
        pieces += [StyledText(gap + padding), cell] if column.right else [StyledText(gap), cell, StyledText(padding)]
    # Nothing stands to the right of the last cell, so it needs no room after it.
    return pieces[:-1] if columns and not columns[-1].right else pieces


def _wrap(text: str, size: int, lines: int) -> list[str]:
    """The text on at most so many lines of a width; an ellipsis says that there is more."""
    folded: list[str] = []
    while display_width(text) > size and len(folded) < lines - 1:
        head = _prefix_within(text, size)
        space = head.rfind(" ")
        # A break between words, if that does not leave most of the line empty.
        if space > len(head) // 2 and not text[len(head) :].startswith(" "):
            head = head[:space]
        folded.append(head.rstrip())
        text = text[len(head) :].lstrip()
    return [*folded, truncate(text, size)]


def truncate(text: str, size: int) -> str:
    """The text, or as much of it as fits before an ellipsis."""
    return text if display_width(text) <= size else _prefix_within(text, size - 1).rstrip() + "…"


def _prefix_within(text: str, size: int) -> str:
    used = 0
    for position, character in enumerate(text):
        used += _character_width(character)
        if used > size:
            return text[:position]
    return text


def display_width(text: str) -> int:
    """How many columns the text takes on a terminal."""
    return len(text) if text.isascii() else sum(map(_character_width, text))


def _character_width(character: str) -> int:
    if unicodedata.combining(character) or unicodedata.category(character) in ("Cf", "Me", "Mn"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
