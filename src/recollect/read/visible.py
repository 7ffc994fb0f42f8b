"""Only what a reader can see: no control, direction, zero-width or tag characters, and for some blocks no lines."""

from __future__ import annotations

import re

_LINE_END = re.compile("\r\n?|[\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
# Controls, and what Unicode says may be left out when it cannot be shown: direction marks, zero widths, variation
# selectors, tags, fillers. Text is hidden in them; the cost is that some emoji come apart.
_INVISIBLE = re.compile(
    "[\x00-\x08\x0e-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f"
    "\u202a-\u202e\u2060-\u206f\u3164\ufdd0-\ufdef\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\ufffe\uffff"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
# What chat templates use to say who speaks, and any tag or comment: a model that reads such a mark in a memory would
# leave the message, and a page that shows it would obey it.
_MARK = re.compile(
    r"<(?=[|｜<!?]|/?[a-z][^<>=]*+[>=])"
    r"|\[(?=/?(?:INST|SYSTEM_PROMPT|TOOL_CALLS|TOOL_RESULTS|AVAILABLE_TOOLS|IMG)\])",
    re.IGNORECASE,
)
_CODE_FENCE = re.compile("`{3,}|~{3,}")
_BLOCK_START = re.compile(r"#{1,6}(?: |$)|>|[-+*](?: |$)|(?:-{3,}|={3,}|\*{3,}|_{3,})$")


def remove_invisible(text: str) -> str:
    """The text without what cannot be seen; every kind of line end is a newline, half a character is U+FFFD."""
    if text.isascii() and text.isprintable():
        return text
    text = _LINE_END.sub("\n", text)
    text = _LONE_SURROGATE.sub("\ufffd", text)
    return _INVISIBLE.sub("", text)


def one_line(text: str) -> str:
    """The visible text on one line that starts no heading, list, quote, fence or turn of its own.

    Any run of spaces and line ends is one space. Three or more backticks or tildes become two, a mark that would
    start a Markdown block gets a backslash before it, a tag or a mark of a chat template a space inside it.
    """
    line = " ".join(remove_invisible(text).split())
    line = _MARK.sub(lambda mark: mark[0] + " ", line)
    line = _CODE_FENCE.sub(lambda fence: fence[0][:2], line)
    return f"\\{line}" if _BLOCK_START.match(line) else line
