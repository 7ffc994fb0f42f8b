"""Tell the lines that are their author's own from those that they only show: code, logs, mails, what others wrote."""

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
_MOST_ANNOUNCING_CHARS = 200
_TEXTS = (
    r"\b(?:e-?mails?|mail|messages?|letters?|texts?|articles?|posts?|tweets?|comments?|reviews?|transcript|excerpt|passage"
    r"|paragraph|reply|nachricht|brief|artikel|beitrag|correo|mensaje|carta|artículo|texto|courriel|lettre|texte)\b"
)
# What follows such a line was written by somebody, not said by the user; a word of it may stand on the same line.
_ANNOUNCES = re.compile(
    rf"[^:]*{_TEXTS}[^:]*:\s*[\"“„«]?\s*$"
    rf"|[^:]*{_TEXTS} (?:from|by|of|von|vom|de|del|du)\b[^:]*:\s"
    r"|[^:]*\b(?:wrote|writes|says|said|replied|answered|texted|schrieb|schreibt|sagt|sagte|escribió|dice|dijo|écrit)"
    r"(?: to me| me| mir| back)?\s*:(?!//)"
    r"|\W*(?:begin )?(?:forwarded message|forwarded|fwd|original message|weitergeleitete nachricht|mensaje reenviado"
    r"|message transféré)\b"
    r"|(?:from|subject|sent|von|betreff|asunto|objet): "
    r"|\s*(?:-{3,}|_{3,}|={3,}|\*{3,})\s*$",
    re.IGNORECASE,
)
_OWN_ADDRESS = re.compile(
    r"(?:my|mein\w*|mi|mon) (?:e-?mail|mail|correo|courriel)(?: address)?(?: is)?:", re.IGNORECASE
)
_OPENS_QUOTE = re.compile(r"\s*([\"“„«])")
_CLOSES_QUOTE = re.compile(r"[\"”“»]\s*[.,;!?]?\s*$")


def own_lines(text: str) -> Iterator[str]:
    """The lines that look like what their author says, up to where a text of somebody else is announced."""
    lines = text.splitlines()
    speakers = sum(_SPEAKER.match(line) is not None for line in lines)
    shows_code = any(_CODE_START.match(line) for line in lines)
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
        if (announced := announces(line)) is not None:
            if own := line[:announced].rpartition(". ")[0]:
                yield f"{own}."
            return
        if shows_code and _INDENTED.match(line):
            continue
        if not _is_shown(line) and not (speakers > 1 and _SPEAKER.match(line)):
            yield line


def announces(line: str) -> int | None:
    """Where in the line somebody else's text is announced to follow; None if it is not."""
    found = _ANNOUNCES.match(line) if len(line) <= _MOST_ANNOUNCING_CHARS else None
    return None if found is None or _OWN_ADDRESS.search(line) else found.end()


def _opens_quote(line: str) -> bool:
    return _OPENS_QUOTE.match(line) is not None and sum(line.count(sign) for sign in '"“”„«»') % 2 == 1


def _is_shown(line: str) -> bool:
    """Whether the line looks like code, a log or a quote rather than like speech."""
    if _QUOTED_LINE.match(line) or _CODE_START.match(line) or _LOG_START.match(line):
        return True
    signs = sum(1 for _ in _CODE_SIGN.finditer(line))
    return signs >= 2 and signs * 15 > len(line)
