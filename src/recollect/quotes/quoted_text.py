"""Separate the author's own words from text that they quote, paste, submit for processing, or role-play.

If the end of quoted text is unclear, it extends to the end of the turn: missing a statement of the author does less
harm than attributing a page to them.
"""

from __future__ import annotations

import re
import tomllib
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from recollect.frozen_dataclass import frozen_dataclass
from recollect.lazy_pattern import lazy_pattern
from recollect.model.memory import MemoryRecord, Trust
from recollect.model.turn import Role, Turn
from recollect.quotes.pasted_instructions import instruction_spans, pasted_spans
from recollect.text.instructions import find_instruction

# Replaces removed text within a line.
ELIDED = "[…]"
# A text without any of these has no quoted parts.
_MAY_QUOTE = lazy_pattern(r"[\n:<\"“„«]|'''|\b(?:in|im|en|dans) ", re.IGNORECASE)
# Tags that only format text.
_NOT_STYLE_TAG = r"(?!(?:b|i|u|s|em|strong|sub|sup|mark|small|span)\b)"
_BLOCK_START = lazy_pattern(
    r"^[ \t]{0,3}(?P<fence>`{3,}|~{3,})|(?P<triple>\"\"\"|''')"
    rf"|<{_NOT_STYLE_TAG}(?P<tag>[A-Za-z][\w-]{{0,40}})(?:\s[^<>\n]{{0,200}})?>"
    r"|^[ \t]*(?P<rule>-{3,}|_{3,}|={3,}|\*{3,})[ \t]*$",
    re.MULTILINE,
)
_FENCE = lazy_pattern(r"^[ \t]{0,3}(?:`{3,}|~{3,})", re.MULTILINE)
_CLOSING_TAG = lazy_pattern(r"</([A-Za-z][\w-]{0,40})\s*>")
_QUOTED_LINE = lazy_pattern(r"^[ \t]{0,3}>.*$", re.MULTILINE)
_QUOTE = lazy_pattern(r"[\"“„«]([^\"”“„«»\n]*)[\"”“»]")
_SENTENCE_END = lazy_pattern(r"[.!?](?=\s|$)")
# Fewer quoted words are a title or a name.
_MIN_QUOTE_WORDS = 3
# The maximum length of a line that announces quoted text.
_MAX_ANNOUNCEMENT_CHARS = 200
# Longer texts are pasted.
_MAX_TYPED_CHARS = 1 << 15


class _QuoteCues:
    """The compiled patterns of quoted_text.toml."""

    def __init__(self, table: Mapping[str, Any]) -> None:
        texts, every = _any_of(table["texts"]), _any_of([*table["texts"], *table["shown"]])
        this, says, by_self = _any_of(table["this"]), _any_of(table["says"]), _any_of(table["by_self"])
        one = rf"\b{this}\b(?: [\w-]+){{0,2}}? {every}\b"
        announces = [
            rf"[^:]*\b{texts}\b[^:]*:\s*[\"“„«]?\s*$",
            rf"[^:]*\b{texts} (?:from|by|of|von|vom|de|del|du)\b[^:]*:\s",
            rf"[^:]*{one}(?: [\w'’-]+){{0,4}}\s?:(?!//|\d)",
            rf"(?![^:]*\b{by_self} {says}\b)[^:]*\b{says}(?: to me| me| mir| back| this| that)?\s*:(?!//|\d)",
            rf"(?:[^:]*[.!?,;] )?(?:\w+ ){{0,4}}\b{_any_of(table['work'])}\b[^:.!?]{{0,80}}:(?!//|\d)",
            *table["passed_on"],
        ]
        worked_on = rf"\b{_any_of(table['work'])}\b[^:.!?]{{0,60}}"
        self.announces = [_compile(each) for each in announces]
        self.own = _compile(
            rf"\b(?:my|our|mein\w*|mi|mon) (?:e-?mail|mail|correo|courriel)(?: address)?(?: is)?:"
            rf"|^\W*(?:please |bitte )?{_any_of(table['keeps'])}\b"
        )
        self.requests = _compile(
            rf"{worked_on}\b(?:this|these|following|below|{this} {every})\b[^:.!?]{{0,60}}(?:[.!?:]|$)"
            rf"|\b{_any_of(table['look_at'])}\b[^:.!?]{{0,40}}?\b(?:this|these|following|diese\w*|folgende\w*|est[ea]|cet|cette|ce)"
            rf"(?: [\w-]+)?? {every}\b[^:.!?]{{0,60}}(?:[.!?:]|$)"
        )
        self.about_above = _compile(rf"^\W*(?:\w+ ){{0,4}}{worked_on}\b(?:this|that|it|these|above)\b")
        self.questions = _compile(rf"\b{_any_of(table['asked_about'])}\b")
        self.reports = _compile(rf"\b(?:{says}|{every})\b")
        self.speaks = _compile(rf"\b{_any_of(table['speaks'])}\b")
        self.plays = _compile(
            rf"(?:^|[.!?:,;]\s|\band )\W*{_any_of(table['plays'])},? (?={_any_of(table['played'])}\b)"
        )


def author_text(text: str) -> str:
    """Return the text without quoted parts; within a line ELIDED replaces them."""
    text = _without_pasted_instructions(text)
    if not _MAY_QUOTE.search(text):
        return text
    text = _QUOTED_LINE.sub("", _without_blocks(text))
    lines = text.split("\n")
    lines = lines[_request_line(lines) :]
    own: list[str] = []
    for at, line in enumerate(lines):
        if not line.strip():
            own.append(line)
            continue
        if (cut := _quote_start(line)) is not None:
            own.append(f"{line[:cut].rstrip()} {ELIDED}")
            break
        own.append(_without_quotes(line))
        if _requests_work(line) and any(map(str.strip, lines[at + 1 :])):
            break
    return "\n".join(own).strip()


def quotes_instruction(text: str) -> bool:
    """Return whether the text contains an instruction outside of its author's own words.

    Nobody types a very long text: it counts as one that does, unread.
    """
    if len(text) > _MAX_TYPED_CHARS:
        return True
    pieces = [" ".join(text[span.start : span.end].split()) for span in instruction_spans(text)]
    own = " ".join(author_text(text).split()) if pieces else ""
    return any(piece not in own for piece in pieces)


def with_earned_trust(record: MemoryRecord) -> MemoryRecord:
    """Return the memory, with low trust if it contains an instruction outside of its author's own words."""
    if record.trust is not Trust.HIGH or not quotes_instruction(record.content):
        return record
    return replace(record, trust=Trust.LOW)


def _without_pasted_instructions(text: str) -> str:
    parts: list[str] = []
    last = 0
    for span in pasted_spans(text):
        line_start = text.rfind("\n", 0, span.start) + 1
        if not _quote_cues().own.search(text, line_start, span.start):
            parts += [text[last : span.start], ELIDED]
            last = span.end
    return "".join([*parts, text[last:]]) if parts else text


def _without_blocks(text: str) -> str:
    """Remove blocks between fences, triple quotation marks, tags or rules."""
    closing = {match[1].lower(): match.end() for match in _CLOSING_TAG.finditer(text)}
    parts: list[str] = []
    last = at = 0
    while (opened := _BLOCK_START.search(text, at)) is not None:
        end = _block_end(text, opened, closing)
        if end <= opened.start():
            at = opened.end()
            continue
        within = opened["triple"] or opened["tag"]
        parts += [text[last : opened.start()], ELIDED if within else "\n"]
        last = at = end
    return "".join([*parts, text[last:]]) if parts else text


def _block_end(text: str, opened: re.Match[str], closing: dict[str, int]) -> int:
    """Return where an opened block ends: at most its start if it is no block, the text's end if it is not closed."""
    if opened["fence"]:
        closed = _FENCE.search(text, opened.end())
        return _line_end(text, closed.start()) if closed else len(text)
    if mark := opened["triple"]:
        # The quoted text may contain more of them: only the last certainly closes it.
        end = text.rfind(mark, opened.end())
        return end + len(mark) if end >= 0 else len(text)
    if tag := opened["tag"]:
        return closing.get(tag.lower(), 0)
    # A rule may separate or close: after one, the speaker is unknown.
    return len(text)


def _line_end(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end


def _quote_start(line: str) -> int | None:
    """Return where quoted text begins in a line; None if it does not."""
    cues = _quote_cues()
    if part := cues.plays.search(line):
        return part.end()
    head = line[:_MAX_ANNOUNCEMENT_CHARS]
    if len(line) > _MAX_ANNOUNCEMENT_CHARS:
        # So that the cut is not taken for the line's end.
        head += "…"
    announcement = next((match for each in cues.announces if (match := each.match(head))), None)
    return None if announcement is None or cues.own.search(announcement[0]) else min(announcement.end(), len(line))


def _requests_work(line: str) -> bool:
    return len(line) <= _MAX_ANNOUNCEMENT_CHARS and _quote_cues().requests.search(line) is not None


def _request_line(lines: Sequence[str]) -> int:
    """Return the last line's number if it asks to process the text above it; else 0."""
    last = next((at for at in range(len(lines) - 1, -1, -1) if lines[at].strip()), 0)
    is_apart = last >= 2 and not lines[last - 1].strip()
    is_request = (
        is_apart and len(lines[last]) <= _MAX_ANNOUNCEMENT_CHARS and _quote_cues().about_above.search(lines[last])
    )
    return last if is_request else 0


def _without_quotes(line: str) -> str:
    """Remove quoted sentences that the author asks about, and quoted commands of others."""
    if not _QUOTE.search(line):
        return line
    context = _QuoteContext.from_line(_QUOTE.sub(lambda quote: " " * len(quote[0]), line))
    return _QUOTE.sub(lambda quote: ELIDED if context.is_quotation(quote) else quote[0], line)


@frozen_dataclass
class _QuoteContext:
    """The ends of sentences in a line, and of words that ask about a quote or report it."""

    line: str
    ends: Sequence[int]
    question_ends: Sequence[int]
    report_ends: Sequence[int]

    @classmethod
    def from_line(cls, line: str) -> _QuoteContext:
        """Return the context of a line in which quotes are replaced by blanks."""
        patterns = (_SENTENCE_END, _quote_cues().questions, _quote_cues().reports)
        return cls(line, *([match.end() for match in each.finditer(line)] for each in patterns))

    def is_quotation(self, quote: re.Match[str]) -> bool:
        """Return whether the quoted words are somebody else's."""
        if len(quote[1].split()) < _MIN_QUOTE_WORDS:
            return False
        commands = bool(find_instruction(quote[1]))
        if not commands and not _quote_cues().speaks.search(quote[1]):
            # A title.
            return False
        at = bisect_right(self.ends, quote.start())
        start = self.ends[at - 1] if at else 0
        end = self.ends[at] if at < len(self.ends) else len(self.line)
        if self.line[end - 1] == "?" or _any_within(self.question_ends, start, end):
            return True
        return commands and _any_within(self.report_ends, start, quote.start())


def _any_within(places: Sequence[int], start: int, end: int) -> bool:
    return bisect_right(places, start) < bisect_right(places, end)


@cache
def _quote_cues() -> _QuoteCues:
    table = tomllib.loads(Path(__file__).with_name("quoted_text.toml").read_text(encoding="utf-8"))
    return _QuoteCues(table)


def _compile(expression: str) -> re.Pattern[str]:
    return re.compile(expression, re.IGNORECASE)


def _any_of(expressions: Iterable[str]) -> str:
    return f"(?:{'|'.join(expressions)})"


def user_text(turns: Sequence[Turn]) -> str:
    """Return the user's own words in the turns, without quoted text."""
    return "\n".join(filter(None, (author_text(turn.content) for turn in turns if turn.role is Role.USER)))
