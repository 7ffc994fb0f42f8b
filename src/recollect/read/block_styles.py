"""The styles of the prompt block: sections, line formats and delimiters."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from json.encoder import encode_basestring

from recollect.frozen_dataclass import frozen_dataclass
from recollect.lazy_pattern import lazy_pattern
from recollect.model.memory import Category
from recollect.model.messages import new_fence
from recollect.read.sanitize import one_line, remove_invisible

MEMORIES = frozenset(Category) - {Category.TURN, Category.SUMMARY, Category.EPISODE}


@frozen_dataclass(kw_only=True)
class BlockItem:
    """One memory in a block. All fields but `content` and `value` are already sanitised and on one line.

    `at` is when it was said, `event_at` when it happened if that was another day. `until` is the day on which what it
    says ended, empty for what holds. Memories about one subject share a number. `quoted_from` is the source of words
    that are not the user's own; if they `may_instruct`, every style shows it.
    """

    id: str
    category: Category
    content: str
    at: datetime
    event_at: datetime | None = None
    position: int = 0
    role: str = ""
    name: str = ""
    key: str = ""
    value: str = ""
    importance: float = 0.5
    turns: str = ""
    until: str = ""
    quoted_from: str = ""
    may_instruct: bool = False
    subject: int = 0

    @property
    def date(self) -> str:
        return self.at.date().isoformat()

    @property
    def event_date(self) -> str:
        """The day of the event, empty if it is unknown or the same as `date`."""
        return self.event_at.date().isoformat() if self.event_at else ""

    @property
    def speaker(self) -> str:
        """The speaker of a turn: name or role."""
        return self.name or self.role

    def with_speaker(self, words: str) -> str:
        """Return the words after the speaker's name, if there is one."""
        return f"{self.speaker}: {words}" if self.speaker else words


def mark_words(item: BlockItem, words: str) -> str:
    """Return the words with the end of validity, and with their source if they could pass for an instruction."""
    words = f"{words} (until {item.until})" if item.until else words
    return f"(quoted from {item.quoted_from}, no instruction) {words}" if item.may_instruct else words


@frozen_dataclass(kw_only=True)
class BlockSection:
    """The memories of some categories under one title.

    `line` writes one, given its words (cleaned, perhaps cut) and its number among its category here. `words` says
    what of it is shown; `shows` is the most characters of that, 0 for all. Lines stand in the order of relevance, or
    `in_time`, or `by_subject`: those about one subject together, the newest first. The head of the block is left out
    if no section `under_head` has lines.
    """

    line: Callable[[BlockItem, str, int], str]
    categories: frozenset[Category] = frozenset(Category)
    title: str = ""
    words: Callable[[BlockItem], str] = lambda item: item.content
    max_chars: int = 0
    by_time: bool = False
    by_subject: bool = False
    under_head: bool = True


@frozen_dataclass(kw_only=True)
class BlockStyle:
    """Sections in the order in which they are printed; each memory goes to the first that takes it.

    `head` ends and `foot` and `between` start with a line end, so that lines can be counted one by one. `mark` puts
    into the words of a memory that they are past or quoted.
    """

    sections: tuple[BlockSection, ...]
    head: str = ""
    between: str = "\n"
    foot: str = ""
    clean: Callable[[str], str] = one_line
    mark: Callable[[BlockItem, str], str] = mark_words


_BRACKETED = lazy_pattern(r"\[(?=/?[A-Z_]+\])")


def fenced_style(now: datetime) -> BlockStyle:
    """Return the style with new random fences, for one block only."""
    head, foot = new_fence(now)
    return BlockStyle(
        head=head, sections=(BlockSection(line=_json_line, by_subject=True),), foot=foot, clean=_clean, mark=_unmarked
    )


def _json_line(item: BlockItem, words: str, _: int) -> str:
    # Field by field: an encoder made for each line takes as long as all the rest of it.
    speaker = f'"who": {encode_basestring(item.speaker)}, ' if item.speaker else ""
    event = f'"event_date": "{item.event_date}", ' if item.event_at else ""
    until = f'"until": "{item.until}", ' if item.until else ""
    source = f'"quoted_from": {encode_basestring(item.quoted_from)}, ' if item.quoted_from else ""
    dates = f'"date": "{item.date}", {event}{until}'
    line = f'{{{dates}"kind": "{item.category}", {speaker}{source}"text": {encode_basestring(words)}}}'
    # Escaped, a tag or the mark of a chat template reads the same to a JSON parser and means nothing to a tokenizer.
    return _BRACKETED.sub(r"\\u005b", line.replace("<", r"\u003c").replace(">", r"\u003e"))


def _unmarked(_: BlockItem, words: str) -> str:
    """Return the words alone, for styles that have fields for the end of validity and the source."""
    return words


def _clean(text: str) -> str:
    return remove_invisible(text).strip()


def _role_line(item: BlockItem, words: str, _: int) -> str:
    text = f"{item.name}: {words}" if item.name else words
    return f"[{item.role or 'memory'}] {text}"


MARKDOWN_PROXY = BlockStyle(
    sections=(
        # On the same line as its name: alone on a line, a summary could pass for a memory of some role.
        BlockSection(
            categories=frozenset({Category.SUMMARY}),
            line=lambda item, words, _: f"Conversation summary: {words}",
        ),
        BlockSection(title="Long-term memory (most relevant first):\n", line=_role_line),
    ),
    between="\n\n",
)


def _conversation_line(item: BlockItem, words: str, number: int) -> str:
    if item.category is Category.TURN:
        return f"- {item.with_speaker(words)}"
    return f"- Previous invocation {number}: {words}"


REACT_MEM = BlockStyle(
    sections=(
        BlockSection(title="Long-term Facts:\n", categories=MEMORIES, line=lambda item, words, _: f"- {words}"),
        BlockSection(
            title="Relevant Past Episodes:\n",
            categories=frozenset({Category.EPISODE}),
            line=lambda item, words, number: f"- Episode {number}: {words}",
        ),
        BlockSection(title="Conversation History:\n", line=_conversation_line),
    ),
)


SEMANTIC_ROUTER = BlockStyle(
    head="## User's Relevant Context\n\n",
    sections=(BlockSection(line=lambda item, words, _: f"- {item.with_speaker(words)}"),),
    foot="\n",
)


def _importance_line(item: BlockItem, words: str, _: int) -> str:
    importance = round(float(item.importance), 2)
    return f"- [{item.category.upper()}] {item.with_speaker(words)} (importance: {importance})"


SESSION_SERVICE = BlockStyle(
    head="Relevant memories from this session:\n",
    sections=(BlockSection(line=_importance_line),),
    foot="\n\nUse these memories to provide contextually aware responses.",
)


_EPISODE_CHARS = 150


def _profile_line(item: BlockItem, words: str, _: int) -> str:
    return f"- {item.key}: {words}" if item.key and item.value else f"- {words}"


def _context_line(item: BlockItem, words: str, _: int) -> str:
    # The dots stand for the conversation behind the summary, whether or not the summary itself was shortened.
    return f"- {item.turns or item.event_date or item.date}: {words.rstrip('. ')}..."


THREE_TIER = BlockStyle(
    head="# Long-term Memory\n",
    sections=(
        BlockSection(
            title="## User Profile\n",
            categories=MEMORIES - {Category.EVENT},
            line=_profile_line,
            words=lambda item: item.value if item.key and item.value else item.content,
        ),
        BlockSection(
            title="## Recent Context\n",
            categories=frozenset({Category.EPISODE, Category.SUMMARY, Category.EVENT}),
            line=_context_line,
            max_chars=_EPISODE_CHARS,
        ),
        BlockSection(
            title="# Recent Conversation\n",
            line=lambda item, words, _: f"{item.speaker or 'unknown'}: {words}",
            by_time=True,
            under_head=False,
        ),
    ),
    between="\n\n",
    foot="\n\nAnswer consistently using the memory and conversation above.",
)
