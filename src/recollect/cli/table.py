"""Aligned columns that fit the terminal."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from recollect.cli.terminal import Piece, clean, dim, say, width

_GAP = 2
_LEAST = 24


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
class Row:
    """The cells of a row, and lines that stand below it across the columns."""

    cells: Sequence[str]
    notes: Sequence[str] = ()


def print_table(columns: Sequence[Column], rows: Sequence[Row | Sequence[str]]) -> None:
    """Print the rows under their titles; without a terminal nothing is cut."""
    given = [row if isinstance(row, Row) else Row(row) for row in rows]
    given = [replace(row, cells=[clean(cell) for cell in row.cells]) for row in given]
    natural = [
        max([width_of(column.title), *(width_of(row.cells[at]) for row in given)])
        for at, column in enumerate(columns)
    ]
    shown, widths = _fitted(columns, natural, width())
    say(*_line([dim(columns[at].title) for at in shown], [columns[at] for at in shown], widths))
    for row in given:
        for pieces in _lines(row, columns, shown, widths):
            say(*pieces)


def _fitted(columns: Sequence[Column], natural: Sequence[int], total: int | None) -> tuple[list[int], list[int]]:
    """Which columns are shown, and how wide: flexible ones give way, optional ones leave before that hurts."""
    shown = list(range(len(columns)))
    while total is not None:
        flexible = [at for at in shown if columns[at].flexible]
        fixed = sum(natural[at] for at in shown if at not in flexible) + _GAP * (len(shown) - 1)
        wanted = sum(natural[at] for at in flexible)
        if fixed + wanted <= total:
            break
        left = total - fixed
        leaving = next((at for at in reversed(shown) if columns[at].optional), None)
        if left < min(wanted, _LEAST * len(flexible)) and leaving is not None:
            shown.remove(leaving)
            continue
        if not flexible:
            break
        shares = {at: max(8, left * natural[at] // wanted) for at in flexible}
        return shown, [shares.get(at, natural[at]) for at in shown]
    return shown, [natural[at] for at in shown]


def _lines(row: Row, columns: Sequence[Column], shown: list[int], widths: list[int]) -> Iterator[list[Piece]]:
    cells = [_folded(row.cells[at], size, columns[at].lines) for at, size in zip(shown, widths, strict=True)]
    for number in range(max(map(len, cells))):
        line = [
            Piece(cell[number] if number < len(cell) else "", columns[at].style)
            for at, cell in zip(shown, cells, strict=True)
        ]
        yield _line(line, [columns[at] for at in shown], widths)
    for note in row.notes:
        room = width()
        yield [dim("       " + (cut(clean(note), room - 7) if room else clean(note)))]


def _line(cells: Sequence[Piece], columns: Sequence[Column], widths: Sequence[int]) -> list[Piece]:
    pieces: list[Piece] = []
    for cell, column, size in zip(cells, columns, widths, strict=True):
        room = " " * (size - width_of(cell.text))
        gap = " " * _GAP if pieces else ""
        pieces += [Piece(gap + room), cell] if column.right else [Piece(gap), cell, Piece(room)]
    # Nothing stands to the right of the last cell, so it needs no room after it.
    return pieces[:-1] if columns and not columns[-1].right else pieces


def _folded(text: str, size: int, lines: int) -> list[str]:
    """The text on at most so many lines of a width; an ellipsis says that there is more."""
    folded: list[str] = []
    while width_of(text) > size and len(folded) < lines - 1:
        head = _head(text, size)
        space = head.rfind(" ")
        # A break between words, if that does not leave most of the line empty.
        if space > len(head) // 2 and not text[len(head) :].startswith(" "):
            head = head[:space]
        folded.append(head.rstrip())
        text = text[len(head) :].lstrip()
    return [*folded, cut(text, size)]


def cut(text: str, size: int) -> str:
    """The text, or as much of it as fits before an ellipsis."""
    return text if width_of(text) <= size else _head(text, size - 1).rstrip() + "…"


def _head(text: str, size: int) -> str:
    used = 0
    for at, character in enumerate(text):
        used += _width_of_character(character)
        if used > size:
            return text[:at]
    return text


def width_of(text: str) -> int:
    """How many columns the text takes on a terminal."""
    return len(text) if text.isascii() else sum(map(_width_of_character, text))


def _width_of_character(character: str) -> int:
    if unicodedata.combining(character) or unicodedata.category(character) in ("Cf", "Me", "Mn"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
