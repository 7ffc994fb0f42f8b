"""Split a message into the author's own sentences, without code, logs, transcripts and quotations."""

from __future__ import annotations

import re
from collections.abc import Iterator

from recollect.frozen_dataclass import frozen_dataclass
from recollect.lazy_pattern import lazy_pattern
from recollect.quotes.quoted_text import ELIDED, author_text

_FENCE = lazy_pattern(r"[ \t]*(?:```|~~~)")
_QUOTED_LINE = lazy_pattern(r"[ \t]*>")
_CODE_START = lazy_pattern(
    r"\s*(?:import |from \S+ import|def |class \w+[:(]|#include|public |private |const |let |var |function |return\b"
    r"|SELECT |INSERT |UPDATE |CREATE |\$ |>>> |\.\.\. |at [\w.$]+\(|Traceback|File \"|</?\w+[ >]|@\w+\("
    r"|Exception in thread |[\w.$]+(?:Error|Exception): )"
)
_DIFF_START = lazy_pattern(r"diff --git |@@ -\d+|(?:---|\+\+\+) \S*/")
_DIFF_LINE = lazy_pattern(r"[-+ @]|diff --git |index \w+\.\.")
_LOG_START = lazy_pattern(
    r"\s*(?:\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d|(?:[A-Z][a-z]{2} [ \d]\d )?\[?\d\d:\d\d:\d\d"
    r"|\[?(?:DEBUG|INFO|WARN|WARNING|ERROR|FATAL|TRACE)\b[\]: ])"
)
_CODE_SIGN = lazy_pattern(r"[{}<>=|\\^~]|\(\)|;\s*$|::|->")
_INDENTED = lazy_pattern(r"(?: {4}|\t)\s*(?![-*•\d\s])")
_SPEAKER = lazy_pattern(r"\s*[A-Z][\w.]*(?: [A-Z][\w.]*)?: ?\S")
_OPENS_QUOTE = lazy_pattern(r"\s*([\"“„«])")
_CLOSES_QUOTE = lazy_pattern(r"[\"”“»]\s*[.,;!?]?\s*$")


def author_lines(text: str) -> Iterator[str]:
    """Yield the lines that look like the author's own prose; `text` has no marked quotations."""
    lines = text.splitlines()
    speakers = sum(_SPEAKER.match(line) is not None for line in lines)
    has_code = any(_CODE_START.match(line) for line in lines)
    has_diff = any(_DIFF_START.match(line) for line in lines)
    fenced = quoted = False
    for line in lines:
        if _FENCE.match(line):
            fenced = not fenced
            continue
        if fenced or not line.strip():
            continue
        if quoted or _opens_quote(line):
            # A quotation ends with a line that ends with a closing mark.
            quoted = not _CLOSES_QUOTE.search(line)
            continue
        if (has_code and _INDENTED.match(line)) or (has_diff and _DIFF_LINE.match(line)):
            continue
        if not _is_code_or_quote(line) and not (speakers > 1 and _SPEAKER.match(line)):
            yield line


def _opens_quote(line: str) -> bool:
    return _OPENS_QUOTE.match(line) is not None and sum(line.count(sign) for sign in '"“”„«»') % 2 == 1


def _is_code_or_quote(line: str) -> bool:
    """Return whether the line looks like code, a log or a quote."""
    if _QUOTED_LINE.match(line) or _CODE_START.match(line) or _LOG_START.match(line):
        return True
    signs = sum(1 for _ in _CODE_SIGN.finditer(line))
    return signs >= 2 and signs * 15 > len(line)


# In a longer message only the beginning and the end are read: the middle of such messages is pasted text.
_HEAD_CHARS = 3_000
_TAIL_CHARS = 1_000
# A longer sentence is a list or a dump.
_MAX_SENTENCE_CHARS = 600
# Appended to a text to find out whether it ends within a quotation.
_PROBE = "(and so on)"

_ITEM = lazy_pattern(r"[ \t]*(?:[-*•]|\(?\d{1,2}[.)])[ \t]+")
_END = lazy_pattern(r"[.!?…]+[\"'”’)\]]*(?=\s|$)|[。！？]+[”」』）]*")
# Marks before the first word that belong to no sentence: broken characters, stars, emoji.
_BROKEN = "\ufffd"
_JUNK = lazy_pattern(r"[^\w\s\"'“”„«»‘’¿()\[\]{}<>$€£¥₹#@/\\+=~|`-]+\s*")
_WORD_BEFORE = lazy_pattern(r"[\w.]{1,12}$")
_ABBREVIATIONS = frozenset(
    "mr mrs ms dr prof st jr sr vs e.g i.e a.m p.m approx dept est inc ltd co fig vol bzw z.b d.h ca nr str usw sra "
    "srta av ej p.ej mme mlle".split()
)
# Steps numbered in one line: "To reset it: 1. Unplug it 2. Wait".
_NUMBERING = lazy_pattern(r":\s?1\.$|:\s?1\.\s.{1,200}\s[2-9]\.$")
_MONTH_AFTER = lazy_pattern(r"\s+(?:Jan|Feb|Mär|Apr|Mai|Jun|Jul|Aug|Sep|Okt|Nov|Dez)")
_QUOTE = lazy_pattern(r"[\"“„«]([^\"”“„«»]*)[\"”“»]")
_QUOTE_SIGN = lazy_pattern(r"[\"“„«]")
# More quoted words than this are speech; fewer are a title or a name.
_MAX_TITLE_WORDS = 8
_SPEECH = lazy_pattern(r"(?i:\b(?:i|i'm|i’m|my|me|we|ich|mein|yo|mi|je|j'ai|mon)\b)|[?!.,]")


@frozen_dataclass
class Sentence:
    """One sentence; `item` is its mark in a list ("1.", "-"), if it is in one."""

    text: str
    item: str = ""

    @property
    def is_question(self) -> bool:
        """Return whether it ends like a question."""
        return self.text.rstrip(" \"'”’)]").endswith(("?", "？"))


def split_sentences(text: str) -> list[Sentence]:
    """Return the author's own sentences, in order; ELIDED replaces quotations within one."""
    result: list[Sentence] = []
    for piece in _pieces(text):
        for line in author_lines(piece):
            mark = _ITEM.match(line)
            item = mark.group().strip() if mark else ""
            body = line[mark.end() :] if mark else line
            for number, sentence in enumerate(_split(_strip_junk(body))):
                if len(sentence) <= _MAX_SENTENCE_CHARS:
                    result.append(_sentence_without_quotes(sentence, item if number == 0 else ""))
    return result


def _pieces(text: str) -> Iterator[str]:
    if len(text) <= _HEAD_CHARS + _TAIL_CHARS:
        yield author_text(text)
        return
    head = text[:_HEAD_CHARS]
    # Neither piece may begin or end within a sentence: half a sentence may state the opposite.
    cut = max(head.rfind("\n"), head.rfind(". "), head.rfind("! "), head.rfind("? "))
    yield author_text(head[: cut + 1])
    tail = text[-_TAIL_CHARS:]
    start = min((at for at in (tail.find("\n"), tail.find(". "), tail.find("? ")) if at >= 0), default=len(tail))
    if not _in_fence(text) and not _ends_in_quotation(head):
        yield author_text(tail[start + 1 :])


def _in_fence(text: str) -> bool:
    return text.count("```", 0, len(text) - _TAIL_CHARS) % 2 == 1


def _ends_in_quotation(head: str) -> bool:
    """Return whether the head ends within a quotation, which the rest may continue."""
    return not author_text(f"{head}\n{_PROBE}").endswith(_PROBE)


def _strip_junk(line: str) -> str:
    """Return the line without marks around its first and last words."""
    line = line.strip()
    junk = _JUNK.match(line)
    return (line[junk.end() :] if junk else line).rstrip(_BROKEN)


def _split(line: str) -> Iterator[str]:
    start = 0
    for end in _END.finditer(line):
        if end.start() >= start and not _is_inside_sentence(line, end):
            if sentence := line[start : end.end()].strip():
                yield sentence
            start = end.end()
    if sentence := line[start:].strip():
        yield sentence


def _is_inside_sentence(line: str, end: re.Match[str]) -> bool:
    """Return whether the mark ends no sentence: "Dr. No", "J. Smith", "at 5 p.m. on Monday", "3. Mai"."""
    if end.group()[0] != ".":
        return False
    after = line[end.end() : end.end() + 5]
    if _NUMBERING.search(line, 0, end.end()):
        return True
    before = _WORD_BEFORE.search(line, max(0, end.start() - 12), end.start())
    word = before.group() if before else ""
    if word.lower() in _ABBREVIATIONS or (len(word) == 1 and word.isupper() and word != "I"):
        return True
    return after.lstrip()[:1].islower() or (word.isdecimal() and _MONTH_AFTER.match(after) is not None)


def _sentence_without_quotes(sentence: str, item: str) -> Sentence:
    return Sentence(_QUOTE.sub(_title_only, sentence) if _QUOTE_SIGN.search(sentence) else sentence, item)


def _title_only(quote: re.Match[str]) -> str:
    is_title = len(quote[1].split()) <= _MAX_TITLE_WORDS and not _SPEECH.search(quote[1])
    return quote.group() if is_title else ELIDED
