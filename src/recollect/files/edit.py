"""Edits of a text as a model asks for them; pure, so that a text that changed meanwhile is simply edited again."""

from __future__ import annotations

from recollect.errors import ToolFailed
from recollect.files.shown import number_lines

# A model that looks for what is everywhere needs no more places to see that.
_MAX_PLACES = 1000
_CONTEXT_LINES = 2


def replace_once(text: str, old: str, new: str, *, path: str) -> tuple[str, int]:
    """The text with the one place where `old` stands changed, and the number of that line, counted from 0."""
    count = text.count(old)
    if not count:
        raise ToolFailed(f"No replacement was performed, old_str `{old}` did not appear verbatim in {path}.")
    if count > 1:
        raise ToolFailed(
            f"No replacement was performed. Multiple occurrences of old_str `{old}` in lines: "
            f"{', '.join(map(str, _find_lines(text, old)))}. Please ensure it is unique"
        )
    line = text.count("\n", 0, text.find(old))
    return text.replace(old, new), line


def _find_lines(text: str, old: str) -> list[int]:
    """The lines on which it begins, once for each time."""
    places: list[int] = []
    line, last = 1, 0
    at = text.find(old)
    while at >= 0 and len(places) < _MAX_PLACES:
        line += text.count("\n", last, at)
        places.append(line)
        last, at = at, text.find(old, at + 1)
    return places


def render_snippet(text: str, line: int) -> str:
    """What an edited text looks like around a line, which is counted from 0."""
    lines = text.split("\n")
    start, end = max(0, line - _CONTEXT_LINES), min(len(lines), line + _CONTEXT_LINES + 1)
    rendered = number_lines(lines[start:end], start + 1)
    return f"The memory file has been edited. Here is the snippet showing the change (with line numbers):\n{rendered}"


def insert_lines(text: str, line: int, new: str) -> str:
    """The text with lines put after a line; 0 is before the first."""
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    if not 0 <= line <= len(lines):
        raise ToolFailed(f"Invalid `insert_line` parameter: {line}. It should be within the range [0, {len(lines)}].")
    lines.insert(line, new.rstrip("\n"))
    edited = "\n".join(lines)
    return edited if edited.endswith("\n") else f"{edited}\n"
