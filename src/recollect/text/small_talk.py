"""Recognise small talk (greetings, thanks, goodbyes, a bare yes or no) by the words of small_talk.toml."""

from __future__ import annotations

import tomllib
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from recollect.frozen_dataclass import frozen_dataclass
from recollect.lazy_pattern import lazy_pattern

# Only the beginning and the end of a long message are read: people say there what they want.
HEAD_CHARS = TAIL_CHARS = 2000

# Soft hyphen, joiners, marks of direction, variation selectors, tags: they can hide inside a word.
INVISIBLE = lazy_pattern(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff"
    "\U000e0000-\U000e0fff]+"
)
# Accents of Latin, Greek and Cyrillic, points of Hebrew and Arabic: written or not, the word is the same.
ACCENTS = lazy_pattern("[\u0300-\u036f\u0591-\u05c7\u0640\u064b-\u065f\u0670]+")
# Letters and digits; Indic and South-East Asian vowel signs are marks, yet part of the word.
WORD = lazy_pattern("[^\\W_\u0900-\u109f\u1780-\u17ff]+|[\u0900-\u0963\u0966-\u109f\u1780-\u17d3]+")
SPACELESS = lazy_pattern("[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]+")

# By first word: the words that may follow it, the longest sequence first.
Phrases = Mapping[str, Sequence[tuple[str, ...]]]


@frozen_dataclass
class SmallTalk:
    """The words and phrases of messages that are only small talk."""

    phrases: Phrases
    glue: frozenset[str]
    parts: frozenset[str]
    longest_part: int

    def is_all_of(self, words: Sequence[str]) -> bool:
        """Return whether every word is small talk, and not all are mere glue."""
        any_phrase = False
        at, end = 0, len(words)
        while at < end:
            word = words[at]
            size = self._phrase_size(words, at)
            if size:
                any_phrase = True
            elif word in self.glue:
                size = 1
            elif SPACELESS.fullmatch(word) and self._splits_into_parts(word):
                any_phrase, size = True, 1
            else:
                return False
            at += size
        return any_phrase

    def has(self, word: str) -> bool:
        """Return whether the word by itself is small talk or glue, in any language."""
        return word in self.glue or () in self.phrases.get(word, ())

    def _phrase_size(self, words: Sequence[str], at: int) -> int:
        """Return how many words the longest phrase from `at` on has; 0 if there is none."""
        for rest in self.phrases.get(words[at], ()):
            if tuple(words[at + 1 : at + 1 + len(rest)]) == rest:
                return 1 + len(rest)
        return 0

    def _splits_into_parts(self, run: str) -> bool:
        """Return whether the run can be split into listed parts, taking the longest each time."""
        at = 0
        while at < len(run):
            for size in range(min(self.longest_part, len(run) - at), 0, -1):
                if run[at : at + size] in self.parts:
                    at += size
                    break
            else:
                return False
        return True


def fold_text(text: str) -> str:
    """Fold case and look-alike forms; drop accents and invisible characters."""
    if text.isascii():
        return text.lower()
    apart = unicodedata.normalize("NFKD", INVISIBLE.sub("", text)).casefold().replace("ı", "i")
    return unicodedata.normalize("NFC", ACCENTS.sub("", unicodedata.normalize("NFKD", apart)))


def head_and_tail(text: str) -> str:
    """Return the part of a message that is read: all of it, or the beginning and the end of a long one."""
    if len(text) <= HEAD_CHARS + TAIL_CHARS:
        return text
    return f"{text[:HEAD_CHARS]}\n{text[-TAIL_CHARS:]}"


@cache
def load_small_talk() -> SmallTalk:
    """Return the words of small_talk.toml, all languages together."""
    text = Path(__file__).with_name("small_talk.toml").read_text(encoding="utf-8")
    groups = tomllib.loads(text).values()
    phrases: dict[str, set[tuple[str, ...]]] = {}
    for group in groups:
        for first, *rest in _entries(group):
            phrases.setdefault(first, set()).add(tuple(rest))
    glue = frozenset(word for group in groups for word in WORD.findall(fold_text(group.get("glue", ""))))
    parts = frozenset(fold_text(part) for group in groups for part in group.get("parts", ()))
    longest_first = {first: sorted(rests, key=len, reverse=True) for first, rests in phrases.items()}
    return SmallTalk(longest_first, glue, parts, max(map(len, parts)))


def _entries(group: Mapping[str, Any]) -> Iterable[list[str]]:
    """Yield the words and phrases of a group, each as the words a message is split into."""
    for phrase in (*group.get("words", "").split(), *group.get("phrases", ())):
        yield WORD.findall(fold_text(phrase))
