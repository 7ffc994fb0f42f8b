"""Tell the lines that are their author's own from those that they only show: code, logs, transcripts, quotations."""

from __future__ import annotations

import re
from collections.abc import Iterator

_FENCE = re.compile(r"[ \t]*(?:```|~~~)")
_QUOTED_LINE = re.compile(r"[ \t]*>")
_CODE_START = re.compile(
    r"\s*(?:import |from \S+ import|def |class \w+[:(]|#include|public |private |const |let |var |function |return\b"
    r"|SELECT |INSERT |UPDATE |CREATE |\$ |>>> |\.\.\. |at [\w.$]+\(|Traceback|File \"|</?\w+[ >]|@\w+\()"
)
_LOG_START = re.compile(
    r"\s*(?:\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d|\[?\d\d:\d\d:\d\d"
    r"|\[?(?:DEBUG|INFO|WARN|WARNING|ERROR|FATAL|TRACE)\b[\]: ])"
)
_CODE_SIGN = re.compile(r"[{}<>=|\\^~]|\(\)|;\s*$|::|->")
_INDENTED = re.compile(r"(?: {4}|\t)\s*(?![-*•\d\s])")
_SPEAKER = re.compile(r"\s*[A-Z][\w.]*(?: [A-Z][\w.]*)?: ?\S")
_OPENS_QUOTE = re.compile(r"\s*([\"“„«])")
_CLOSES_QUOTE = re.compile(r"[\"”“»]\s*[.,;!?]?\s*$")


def author_lines(text: str) -> Iterator[str]:
    """The lines that look like what their author says; `text` is without what is told to be somebody else's."""
    lines = text.splitlines()
    speakers = sum(_SPEAKER.match(line) is not None for line in lines)
    has_code = any(_CODE_START.match(line) for line in lines)
    fenced = quoted = False
    for line in lines:
        if _FENCE.match(line):
            fenced = not fenced
            continue
        if fenced or not line.strip():
            continue
        if quoted or _opens_quote(line):
            # What began with a quotation mark goes on until one ends a line.
            quoted = not _CLOSES_QUOTE.search(line)
            continue
        if has_code and _INDENTED.match(line):
            continue
        if not _is_code_or_quote(line) and not (speakers > 1 and _SPEAKER.match(line)):
            yield line


def _opens_quote(line: str) -> bool:
    return _OPENS_QUOTE.match(line) is not None and sum(line.count(sign) for sign in '"“”„«»') % 2 == 1


def _is_code_or_quote(line: str) -> bool:
    """Whether the line looks like code, a log or a quote rather than like speech."""
    if _QUOTED_LINE.match(line) or _CODE_START.match(line) or _LOG_START.match(line):
        return True
    signs = sum(1 for _ in _CODE_SIGN.finditer(line))
    return signs >= 2 and signs * 15 > len(line)
