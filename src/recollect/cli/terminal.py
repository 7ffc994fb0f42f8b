"""Writing to the terminal: nothing that was stored can move the cursor, and colours only where they are seen."""

from __future__ import annotations

import json
import re
import shutil
import sys
from typing import Any, NamedTuple, TextIO

# Control characters, line separators, the marks that turn text around, and halves of characters.
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_UNSAFE_IN_JSON = re.compile("[\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}
_colours_enabled = True


class StyledText(NamedTuple):
    """A stretch of text in one style."""

    text: str
    style: str = ""


def dim(text: object) -> StyledText:
    """Text that steps back: ids, times, hints."""
    return StyledText(str(text), "dim")


def bold(text: object) -> StyledText:
    """Text that stands out."""
    return StyledText(str(text), "bold")


def clean(text: str) -> str:
    """The text on one line, with whatever a terminal would obey made visible."""
    if "\n" in text or "\r" in text:
        # By parts: a pattern that swallows the space around line ends takes quadratic time on long runs of it.
        text = " ".join(line.strip() for line in re.split(r"[\r\n]+", text))
    return _UNSAFE.sub(_escape_character, text.replace("\t", " "))


def clean_lines(text: str) -> list[str]:
    """The text's own lines, each of them clean."""
    return [clean(line.expandtabs(4)) for line in re.split(r"\r\n|\r|\n", text)]


def _escape_character(match: re.Match[str]) -> str:
    code = ord(match.group())
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def print_line(*pieces: str | StyledText, err: bool = False) -> None:
    """Write one line."""
    stream = sys.stderr if err else sys.stdout
    stream.write("".join(_render(piece, stream) for piece in pieces).rstrip() + "\n")


def _render(piece: str | StyledText, stream: TextIO) -> str:
    piece = StyledText(piece) if isinstance(piece, str) else piece
    if not piece.style or not piece.text or not has_colours(stream):
        return clean(piece.text)
    return f"\x1b[{_STYLES[piece.style]}m{clean(piece.text)}\x1b[0m"


def has_colours(stream: TextIO) -> bool:
    """Whether colours belong there: a terminal, whose owner has not said no."""
    return _colours_enabled and stream.isatty()


def enable_colours(enabled: bool) -> None:
    """Say whether the owner of the terminal wants colours at all."""
    global _colours_enabled
    _colours_enabled = enabled


def width() -> int | None:
    """How many columns there are; None where nobody counts them, such as in a file or a pipe."""
    return max(40, shutil.get_terminal_size().columns) if sys.stdout.isatty() else None


def print_json(document: Any) -> None:
    """Write one JSON document on one line; characters a terminal would obey are escaped, so nothing is lost."""
    sys.stdout.write(json_text(document, ascii_only=not _is_utf8(sys.stdout)) + "\n")


def json_text(document: Any, *, ascii_only: bool = False) -> str:
    """A JSON document as one line that is safe to print."""
    text = json.dumps(document, ensure_ascii=ascii_only)
    return _UNSAFE_IN_JSON.sub(lambda match: f"\\u{ord(match.group()):04x}", text)


def _is_utf8(stream: TextIO) -> bool:
    return (stream.encoding or "").lower().replace("-", "") == "utf8"
