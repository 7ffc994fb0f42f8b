"""Format memories as a prompt block within a token budget, with statements about one subject together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from recollect.aio.erasable_cache import erasable_cache
from recollect.errors import InvalidInput
from recollect.frozen_dataclass import frozen_dataclass
from recollect.ledger.tokenizer import terms_of
from recollect.model.memory import Category, MemoryRecord, Status
from recollect.model.result import SUMMARY_ID, Hit, PromptBlock
from recollect.read.block_styles import (
    MARKDOWN_PROXY,
    REACT_MEM,
    SEMANTIC_ROUTER,
    SESSION_SERVICE,
    THREE_TIER,
    BlockItem,
    BlockStyle,
    fenced_style,
)
from recollect.read.policy import quotation_source, reads_like_instruction
from recollect.read.sanitize import defang, one_line, remove_invisible
from recollect.text.tokens import MAX_CHARS_PER_TOKEN, TRUNCATION_MARK, count_tokens, truncate_words

# What a text is about is said at its beginning, and a pasted page must not cost milliseconds.
_HEAD_CHARS = 400
# Two texts are about one subject if they share so many terms, and these are so large a part of the shorter text.
_MIN_SHARED, _MIN_OVERLAP = 2, 0.5
# A term of more than this part of the memories ("user") says nothing about their subjects.
_MAX_SPREAD = 0.5
_SUMMARIES = frozenset({Category.SUMMARY, Category.EPISODE})


@frozen_dataclass
class _Subject:
    """A memory with its distinctive terms and its source turns; a turn is its own source."""

    record: MemoryRecord
    terms: frozenset[str]
    turns: frozenset[str]


def group_by_subject(records: Sequence[MemoryRecord]) -> list[int]:
    """Return the number of each memory's group; groups are numbered in the order of their first memories.

    A memory joins the first group whose first memory has the same key, a turn or most terms in common, or supersedes
    it or is superseded by it.
    """
    subjects = _subjects(records)
    leaders: list[_Subject] = []
    groups = []
    for each in subjects:
        group = next((at for at, leader in enumerate(leaders) if _is_same_subject(leader, each)), len(leaders))
        if group == len(leaders):
            leaders.append(each)
        groups.append(group)
    return groups


def _subjects(records: Sequence[MemoryRecord]) -> list[_Subject]:
    terms = [_head_terms(record.content[:_HEAD_CHARS]) for record in records]
    spread = Counter(term for each in terms for term in each)
    max_count = max(len(records) * _MAX_SPREAD, 2)
    common_terms = {term for term, count in spread.items() if count > max_count}
    return [
        _Subject(
            record, record_terms - common_terms, frozenset((record.id,) if _is_turn(record) else record.evidence)
        )
        for record, record_terms in zip(records, terms, strict=True)
    ]


# The same memories are recalled for one question after the other.
@erasable_cache(4_096)
def _head_terms(head: str) -> frozenset[str]:
    return frozenset(terms_of(head))


def _is_turn(record: MemoryRecord) -> bool:
    return record.category is Category.TURN


def _is_same_subject(one: _Subject, other: _Subject) -> bool:
    a, b = one.record, other.record
    if a.category in _SUMMARIES or b.category in _SUMMARIES:
        return False
    if a.key is not None and (a.category, a.key) == (b.category, b.key):
        return True
    if a.superseded_by == b.id or b.superseded_by == a.id or not one.turns.isdisjoint(other.turns):
        return True
    shared = len(one.terms & other.terms)
    return shared >= _MIN_SHARED and shared >= _MIN_OVERLAP * min(len(one.terms), len(other.terms))


STYLES: Mapping[str, Callable[[datetime], BlockStyle]] = {
    "recollect": fenced_style,
    "semantic-router": lambda _: SEMANTIC_ROUTER,
    "react-mem": lambda _: REACT_MEM,
    "session-service": lambda _: SESSION_SERVICE,
    "markdown-proxy": lambda _: MARKDOWN_PROXY,
    "three-tier": lambda _: THREE_TIER,
}

_LABEL_CHARS = 80
# Less than this of a memory says too little to be worth its place.
_MIN_CUT_TOKENS = 24
# Longer lines are counted each time.
_MAX_CACHED_CHARS = 1_000


def format_context(
    style: str,
    hits: Sequence[Hit],
    *,
    budget_tokens: int,
    now: datetime,
    summary: str | None = None,
    invocations: Sequence[str] = (),
    conversation: Sequence[MemoryRecord] = (),
) -> PromptBlock:
    """Return the block of as many of the best hits as fit, after the summary if there is one.

    The turns of a `conversation`, the oldest first, get the space that is left, the latest first, and are not `used`.

    Hits are ordered best first, and the last ones are dropped. One that would take more than half of the budget (all
    of it if it is the only one) is truncated. The text never exceeds the budget, fences and headings included.
    The conversation's invocations come last.
    """
    if style not in STYLES:
        raise InvalidInput(f"unknown context format {style!r}; use one of {', '.join(STYLES)}")
    block = _BlockBuilder(STYLES[style](now), budget_tokens)
    groups = group_by_subject([hit.record for hit in hits])
    items = [_item(hit.record, now, group + 1) for hit, group in zip(hits, groups, strict=True)]
    if summary and summary.strip():
        summary_item = BlockItem(id=SUMMARY_ID, category=Category.SUMMARY, content=summary, at=now)
        block.dropped |= {item.id: "it is the summary" for item in items if _is_same(item, summary_item)}
        items = [summary_item, *(item for item in items if not _is_same(item, summary_item))]
    items += [
        BlockItem(id=f"invocation {number}", category=Category.SUMMARY, content=text, at=now)
        for number, text in enumerate(invocations, 1)
    ]
    shown = {item.id for item in items}
    turns = [_item(turn, now, 0) for turn in reversed(conversation) if turn.id not in shown]
    built = block.build([*items, *turns])
    ids = {turn.id for turn in turns}
    return replace(built, used=tuple(id for id in built.used if id not in ids)) if ids else built


@dataclass(slots=True)
class _BlockBuilder:
    """A block under construction, with the hits used and the reasons for those dropped."""

    style: BlockStyle
    budget: int
    remaining: int = field(init=False)
    lines: dict[int, list[tuple[BlockItem, str]]] = field(default_factory=dict)
    numbers: Counter[tuple[int, Category]] = field(default_factory=Counter)
    used: list[str] = field(default_factory=list)
    cut: dict[str, str] = field(default_factory=dict)
    dropped: dict[str, str] = field(default_factory=dict)
    flagged: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # The first line is the same in every block, and the fence after it in none.
        heading, end, fence = self.style.head.partition("\n")
        overhead = _line_tokens(heading + end) + count_tokens(fence) + count_tokens(self.style.foot)
        self.remaining = self.budget - overhead

    def build(self, items: Sequence[BlockItem]) -> PromptBlock:
        share = self.remaining if len(items) == 1 else self.remaining // 2
        for at, item in enumerate(items):
            if not self._add(item, share):
                self.dropped |= {late.id: f"the budget of {self.budget:,} tokens is used up" for late in items[at:]}
                break
        text = self._render() if self.lines else ""
        # Counted line by line, which comes to no less than counting the whole would.
        tokens = self.budget - self.remaining if text else 0
        return PromptBlock(text, tokens, tuple(self.used), self.cut, self.dropped, self.flagged)

    def _add(self, item: BlockItem, share: int) -> bool:
        """Add the memory if it fits; return whether it did or was empty."""
        at, section = next(each for each in enumerate(self.style.sections) if item.category in each[1].categories)
        # No more is looked at than could ever be shown: a megabyte costs what a page does.
        max_chars = max(share, 0) * MAX_CHARS_PER_TOKEN
        raw = section.words(item)
        defanged = defang(remove_invisible(raw[:max_chars]))
        words = self.style.clean(defanged.text)
        if not words and max_chars:
            self.dropped[item.id] = "nothing of it can be seen"
            return True
        number = self.numbers[at, item.category] + 1
        overhead = 1 if at in self.lines else 1 + count_tokens(section.title) + count_tokens(self.style.between)

        def format_line(words: str) -> str:
            return section.line(item, self.style.mark(item, words), number)

        def count_line(words: str) -> int:
            return overhead + _line_tokens(format_line(words))

        printed = words[: section.max_chars] if section.max_chars else words
        printed = printed + TRUNCATION_MARK if len(raw) > max_chars else printed
        line = format_line(printed)
        if (needed := overhead + _line_tokens(line)) > share:
            limit = min(share, self.remaining)
            printed = truncate_words(printed, limit, count=count_line) if limit >= _MIN_CUT_TOKENS else ""
            line = format_line(printed)
            needed = overhead + _line_tokens(line)
        if not printed or needed > self.remaining:
            return False
        self.remaining -= needed
        self.numbers[at, item.category] = number
        self.lines.setdefault(at, []).append((item, line))
        self.used.append(item.id)
        if printed != words:
            self.cut[item.id] = f"{len(raw):,} characters, of which {len(printed):,} are shown"
        if defanged.kinds:
            self.flagged[item.id] = f"made harmless: {', '.join(sorted(defanged.kinds))}"
        return True

    def _render(self) -> str:
        parts = []
        for at, section in enumerate(self.style.sections):
            if at not in self.lines:
                continue
            lines = self.lines[at]
            if section.by_subject:
                lines = sorted(lines, key=lambda each: (each[0].subject, -each[0].at.timestamp()))
            elif section.by_time:
                lines = sorted(lines, key=lambda each: (each[0].at, each[0].position))
            parts.append(section.title + "\n".join(line for _, line in lines))
        has_head = any(self.style.sections[at].under_head for at in self.lines)
        return (self.style.head if has_head else "") + self.style.between.join(parts) + self.style.foot


def _line_tokens(line: str) -> int:
    return _count_line_tokens(line) if len(line) <= _MAX_CACHED_CHARS else count_tokens(line)


_count_line_tokens = erasable_cache(4_096)(count_tokens)


def _is_same(item: BlockItem, summary_item: BlockItem) -> bool:
    return item.category is summary_item.category and item.content.strip() == summary_item.content.strip()


def _item(record: MemoryRecord, now: datetime, subject: int) -> BlockItem:
    detail = record.detail
    position = detail.get("position")
    source = _label(quotation_source(record))
    return BlockItem(
        id=record.id,
        category=record.category,
        content=record.content,
        at=record.stated_at,
        quoted_from=source,
        may_instruct=bool(source) and reads_like_instruction(record),
        event_at=record.event_at,
        position=position if isinstance(position, int) else 0,
        role=_label(detail.get("role")) if record.category is Category.TURN else "",
        name=_label(detail.get("name")) if record.category is Category.TURN else "",
        key=_label(record.key),
        value=record.value or "",
        importance=record.importance,
        turns=_turns(detail),
        until=_until(record, now),
        subject=subject,
    )


def _until(record: MemoryRecord, now: datetime) -> str:
    """Return the day on which the memory ceased to be valid; empty if it is valid."""
    ended = record.valid_to
    if ended is None and record.status is Status.SUPERSEDED:
        ended = record.updated_at
    return ended.date().isoformat() if ended is not None and ended <= now else ""


def _turns(detail: Mapping[str, object]) -> str:
    """Return the turns that a summary covers, such as "turns 1-10"."""
    if "turn_range" in detail:
        return _label(detail["turn_range"])
    start, end = detail.get("turn_start"), detail.get("turn_end")
    return f"turns {start}-{end}" if isinstance(start, int) and isinstance(end, int) else ""


def _label(value: object) -> str:
    """Return a short field sanitised for the block; it may come from anyone."""
    return _shorten(value[: 4 * _LABEL_CHARS]) if isinstance(value, str) else ""


# Who speaks is one of a few.
@erasable_cache(1024)
def _shorten(text: str) -> str:
    return one_line(defang(remove_invisible(text)).text)[:_LABEL_CHARS]
