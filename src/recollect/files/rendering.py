"""Files and folders as text, in the words of Anthropic's memory tool, and edits of text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from recollect.errors import ToolFailed

_WIDTH = 6
_UNITS = "BKMG"
# The usual size of a folder itself.
_FOLDER_SIZE = "4K"
_MAX_DEPTH = 2


def render_file(text: str, path: str, lines: Sequence[int] | None) -> str:
    """Return a file with numbered lines, or those from `lines[0]` to `lines[1]`; -1 is the end."""
    every = text.split("\n")
    start, end = 0, len(every)
    if lines and len(lines) == 2:
        start = max(lines[0], 1) - 1
        end = end if lines[1] == -1 else lines[1]
    return f"Here's the content of {path} with line numbers:\n{number_lines(every[start:end], start + 1)}"


def number_lines(lines: Sequence[str], first: int) -> str:
    """Return the lines with their numbers."""
    return "\n".join(f"{number:>{_WIDTH}}\t{line}" for number, line in enumerate(lines, first))


def render_folder(sizes: Mapping[str, int], path: str) -> str:
    """Return the content of a folder, two levels deep; `sizes` are by relative path."""
    rows = [f"{_FOLDER_SIZE}\t{path}", *(f"{size}\t{path}/{name}" for size, name in _listed(sizes, "", 1))]
    head = f"Here're the files and directories up to 2 levels deep in {path}, excluding hidden items:\n"
    return head + "\n".join(rows)


def _listed(sizes: Mapping[str, int], below: str, depth: int) -> Iterator[tuple[str, str]]:
    inside: dict[str, dict[str, int]] = {}
    for path, size in sizes.items():
        name, _, rest = path.partition("/")
        inside.setdefault(name, {})[rest] = size
    for name in sorted(inside):
        if name.startswith("."):
            continue
        if "" in inside[name]:
            yield render_size(inside[name][""]), below + name
        else:
            yield _FOLDER_SIZE, f"{below}{name}/"
            if depth < _MAX_DEPTH:
                yield from _listed(inside[name], f"{below}{name}/", depth + 1)


def render_size(count: int) -> str:
    """Return a number of bytes with its unit."""
    unit = min(max(count.bit_length() - 1, 0) // 10, len(_UNITS) - 1)
    size = count / 1024**unit
    return f"{size:.0f}{_UNITS[unit]}" if size.is_integer() else f"{size:.1f}{_UNITS[unit]}"


# More would not help the model.
_MAX_PLACES = 1000
_CONTEXT_LINES = 2


def replace_once(text: str, old: str, new: str, *, path: str) -> tuple[str, int]:
    """Return the text with its only occurrence of `old` replaced, and the line of that, from 0."""
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
    """Return the line of each occurrence."""
    places: list[int] = []
    line, last = 1, 0
    at = text.find(old)
    while at >= 0 and len(places) < _MAX_PLACES:
        line += text.count("\n", last, at)
        places.append(line)
        last, at = at, text.find(old, at + 1)
    return places


def render_snippet(text: str, line: int) -> str:
    """Return the lines of an edited text around a line, counted from 0."""
    lines = text.split("\n")
    start, end = max(0, line - _CONTEXT_LINES), min(len(lines), line + _CONTEXT_LINES + 1)
    rendered = number_lines(lines[start:end], start + 1)
    return f"The memory file has been edited. Here is the snippet showing the change (with line numbers):\n{rendered}"


def insert_lines(text: str, line: int, new: str) -> str:
    """Return the text with lines inserted after a line; 0 is before the first."""
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    if not 0 <= line <= len(lines):
        raise ToolFailed(f"Invalid `insert_line` parameter: {line}. It should be within the range [0, {len(lines)}].")
    lines.insert(line, new.rstrip("\n"))
    edited = "\n".join(lines)
    return edited if edited.endswith("\n") else f"{edited}\n"
