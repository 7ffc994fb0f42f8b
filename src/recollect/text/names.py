"""Find the names in a text by their capital letters, without a list of names or a language.

The first word of a sentence is capitalised whether it is a name or not, so it counts only where another text has it
inside a sentence. German nouns count as names; scripts without letter case have none.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from enum import StrEnum
from typing import NamedTuple

from recollect.lazy_pattern import lazy_pattern
from recollect.text.small_talk import fold_text
from recollect.text.time_words import MONTHS, WEEKDAYS

# Raise it when the mentions of a text change: a ledger filled with another version is filled anew when opened.
NAMES_VERSION = 1
_DATES = frozenset((*MONTHS, *WEEKDAYS))
_WORD = lazy_pattern(r"[^\W\d_]\w+")
_SENTENCE_END = lazy_pattern(r"(?:^|[.!?…:;\n])\W*$")
# Between two words of one name: "New York", "Jean-Luc".
_JOINTS = (" ", "-")
_MAX_WORDS = 4
_MAX_CHARS = 8_000
_MAX_MENTIONS = 64
_MAX_NAME_CHARS = 100
_MAX_KEY_CHARS = 300


class MentionKind(StrEnum):
    """How a memory mentions a name.

    NAME: a capitalised word, or several in a row, inside a sentence. OPENING: the same at the start of a sentence,
    which may be any word. PART: one word of a longer name. KEY: the key of a keyed fact.
    """

    NAME = "name"
    OPENING = "opening"
    PART = "part"
    KEY = "key"


class Mention(NamedTuple):
    """A name in the form in which names are compared, as it is written, and how it is mentioned."""

    name: str
    label: str
    kind: MentionKind


def capitalised_words(text: str) -> Iterator[tuple[re.Match[str], bool]]:
    """Yield the capitalised words, without months and weekdays, each with whether it begins a sentence."""
    for match in _WORD.finditer(text):
        word, start = match[0], match.start()
        # Without the ending of "on Fridays".
        if word[0].isupper() and {word.casefold(), word.casefold().removesuffix("s")}.isdisjoint(_DATES):
            yield match, not start or bool(_SENTENCE_END.search(text[max(0, start - 4) : start]))


def fold_label(label: str) -> str:
    """Return a name in the form in which names are compared: without case, accents, hyphens and repeated spaces."""
    return " ".join(fold_text(label).replace("-", " ").split())[:_MAX_NAME_CHARS]


def find_mentions(content: str, *, key: str | None = None, value: str | None = None) -> list[Mention]:
    """Return the names that a memory mentions, each once, in order; its key is the first."""
    mentions: dict[tuple[str, MentionKind], Mention] = {}
    # The value of a key is no sentence: its first word is capitalised only if it is a name.
    texts = [content] if key is None or not value else [f"is {value}", content]
    for label, kind in (each for text in texts for each in _names(unicodedata.normalize("NFC", text[:_MAX_CHARS]))):
        if len(mentions) >= _MAX_MENTIONS:
            break
        if name := fold_label(label):
            mentions.setdefault((name, kind), Mention(name, label, kind))
    names = {name for name, kind in mentions if kind is MentionKind.NAME}
    unique = [each for each in mentions.values() if each.kind is MentionKind.NAME or each.name not in names]
    # A longer key does not fit into an index.
    keys = [] if key is None or len(key) > _MAX_KEY_CHARS else [Mention(key, key, MentionKind.KEY)]
    return keys + unique


def _names(text: str) -> Iterator[tuple[str, MentionKind]]:
    # Capitals say nothing where there are no other letters, unless it is one word, such as NASA.
    if text.isupper() and len(text.split()) > _MAX_WORDS:
        return
    for words, opens in _runs(text):
        start, end = words[0].start(), words[-1].end()
        yield text[start:end], MentionKind.OPENING if opens else MentionKind.NAME
        if len(words) > 1:
            if opens:
                # "In Berlin": what follows the first word is a name in any case.
                yield text[words[1].start() : end], MentionKind.NAME
            for at, word in enumerate(words):
                yield word[0], MentionKind.OPENING if opens and not at else MentionKind.PART


def _runs(text: str) -> Iterator[tuple[list[re.Match[str]], bool]]:
    """Yield the words that make a name together, and whether the first of them begins a sentence."""
    run: list[re.Match[str]] = []
    run_opens = False
    for word, opens in capitalised_words(text):
        if run and not opens and len(run) < _MAX_WORDS and text[run[-1].end() : word.start()] in _JOINTS:
            run.append(word)
            continue
        if run:
            yield run, run_opens
        run, run_opens = [word], opens
    if run:
        yield run, run_opens


def name_candidates(text: str) -> set[str]:
    """Return all words of a text, and all sequences that are short enough for a name, as names are compared.

    People who write in lower case mention names too; which of these are names, the stored ones tell.
    """
    words = _WORD.findall(fold_text(text[:_MAX_CHARS]))
    return {
        " ".join(words[start:end])
        for start in range(len(words))
        for end in range(start + 1, min(start + _MAX_WORDS, len(words)) + 1)
    }
