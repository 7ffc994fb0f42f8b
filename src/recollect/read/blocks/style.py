"""What a style of block is made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from recollect.model.memory import Category
from recollect.read.visible import one_line

MEMORIES = frozenset(Category) - {Category.TURN, Category.SUMMARY, Category.EPISODE}


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockItem:
    """One memory as a block shows it. All but `content` and `value` are already harmless and on one line.

    `until` is the day on which what it says ended, empty for what holds. Memories about one subject share a number.
    """

    id: str
    category: Category
    content: str
    at: datetime
    position: int = 0
    role: str = ""
    name: str = ""
    key: str = ""
    value: str = ""
    importance: float = 0.5
    turns: str = ""
    until: str = ""
    subject: int = 0

    @property
    def date(self) -> str:
        return self.at.date().isoformat()

    @property
    def speaker(self) -> str:
        """Who said it, for a turn."""
        return self.name or self.role

    def with_speaker(self, words: str) -> str:
        """The words, after who said them if that is known."""
        return f"{self.speaker}: {words}" if self.speaker else words


def mark_past(item: BlockItem, words: str) -> str:
    """The words, with the day they ceased to hold if they did."""
    return f"{words} (until {item.until})" if item.until else words


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockSection:
    """The memories of some categories under one title.

    `line` writes one, given its words (cleaned, perhaps cut) and its number among its category here. `words` says
    what of it is shown; `shows` is the most characters of that, 0 for all. Lines stand in the order of relevance, or
    `in_time`, or `by_subject`: those about one subject together, the newest first.
    """

    line: Callable[[BlockItem, str, int], str]
    categories: frozenset[Category] = frozenset(Category)
    title: str = ""
    words: Callable[[BlockItem], str] = lambda item: item.content
    max_chars: int = 0
    by_time: bool = False
    by_subject: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockStyle:
    """Sections in the order in which they are printed; each memory goes to the first that takes it.

    `head` ends and `foot` and `between` start with a line end, so that lines can be counted one by one. `mark` puts
    into the words of a memory that they are past.
    """

    sections: tuple[BlockSection, ...]
    head: str = ""
    between: str = "\n"
    foot: str = ""
    clean: Callable[[str], str] = one_line
    mark: Callable[[BlockItem, str], str] = mark_past
