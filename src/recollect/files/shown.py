"""What a model is shown of files and folders, in the words that models know from this tool."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

_WIDTH = 6
_UNITS = "BKMG"
# What a folder takes up by itself; models are used to see it.
_FOLDER_SIZE = "4K"
_MAX_DEPTH = 2


def render_file(text: str, path: str, lines: Sequence[int] | None) -> str:
    """A file with numbered lines, or those from the first to the last one named; -1 is the end."""
    every = text.split("\n")
    start, end = 0, len(every)
    if lines and len(lines) == 2:
        start = max(lines[0], 1) - 1
        end = end if lines[1] == -1 else lines[1]
    return f"Here's the content of {path} with line numbers:\n{number_lines(every[start:end], start + 1)}"


def number_lines(lines: Sequence[str], first: int) -> str:
    """Lines with their numbers before them."""
    return "\n".join(f"{number:>{_WIDTH}}\t{line}" for number, line in enumerate(lines, first))


def render_folder(sizes: Mapping[str, int], path: str) -> str:
    """What lies in a folder, two levels deep; `sizes` are by the path below it, `path` is as the model said it."""
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
    """A number of bytes as people read it."""
    unit = min(max(count.bit_length() - 1, 0) // 10, len(_UNITS) - 1)
    size = count / 1024**unit
    return f"{size:.0f}{_UNITS[unit]}" if size.is_integer() else f"{size:.1f}{_UNITS[unit]}"
