"""Pages and the cursors between them: a cursor is the time and the id of the last memory of a page."""

from __future__ import annotations

from recollect.errors import InvalidInput, InvalidText
from recollect.model.memory import MemoryRecord
from recollect.model.result import Page
from recollect.model.text import validate_text
from recollect.model.times import from_micros, to_micros


def make_page(records: list[MemoryRecord], limit: int) -> Page:
    """A page of at most `limit` records; one more than that says there is a next page."""
    if len(records) <= limit:
        return Page(tuple(records))
    last = records[limit - 1]
    return Page(tuple(records[:limit]), f"{to_micros(last.created_at)}_{last.id}")


def parse_cursor(cursor: str) -> tuple[int, str]:
    """The time and id a cursor stands for."""
    micros, _, id = cursor.partition("_")
    try:
        # Only what stands for a time, and text a store can hold, ever came with a page.
        return to_micros(from_micros(int(micros))), validate_text(id)
    except (ValueError, OverflowError, InvalidText):
        raise InvalidInput(f"{cursor!r} is not a cursor; pass the one that came with the page before") from None
