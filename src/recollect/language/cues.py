"""What the words of a message speak for: cues with weights, kept in cues.toml and small_talk.toml."""

from __future__ import annotations

import re
import tomllib
import unicodedata
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib.resources import files
from typing import Any

# What is looked at of a long message: its beginning and its end, where people say what they want.
HEAD_CHARS = TAIL_CHARS = 2000

# Before a phrase that is only looked for at the beginning of a message.
OPENING = "^"

# Soft hyphen, joiners, marks of direction, variation selectors, tags: they can hide inside a word.
INVISIBLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff"
    "\U000e0000-\U000e0fff]+"
)
# Accents of Latin, Greek and Cyrillic, points of Hebrew and Arabic: written or not, the word is the same.
ACCENTS = re.compile("[\u0300-\u036f\u0591-\u05c7\u0640\u064b-\u065f\u0670]+")
# Letters and digits; Indic and South-East Asian vowel signs are marks, yet part of the word.
WORD = re.compile("[^\\W_\u0900-\u109f\u1780-\u17ff]+|[\u0900-\u0963\u0966-\u109f\u1780-\u17d3]+")
SPACELESS = re.compile("[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]+")


class Side(StrEnum):
    """What a cue speaks for."""

    PERSONAL = "personal"
    MEMORY = "memory"
    NEUTRAL = "neutral"
    MANNERS = "manners"
    TOOL = "tool"
    ASSISTANT = "assistant"
    GENERAL = "general"


# Compared by identity: each is made once, and being a key is most of what it does.
@dataclass(frozen=True, slots=True, eq=False)
class Cue:
    """One reason for or against searching, by name."""

    name: str
    side: Side
    weight: float
    english: bool = True


# By first word, then by second ("" for none): what follows, the longest first. Some words open many phrases.
Phrases = Mapping[str, Mapping[str, Sequence[tuple[tuple[str, ...], Cue]]]]


@dataclass(frozen=True, slots=True)
class Cues:
    """All cues, ready to be looked up."""

    threshold: float
    always: float
    longest: int
    named: Mapping[str, Cue]
    phrases: Phrases
    parts: Sequence[tuple[str, Cue]]

    def found_in(self, words: Sequence[str], text: str) -> dict[Cue, str]:
        """Each cue in the words once, with what gave it; `text` is the same message in one piece."""
        found: dict[Cue, str] = {}
        at, end = 0, len(words)
        opening = True
        while at < end:
            size, cue = _longest(self.phrases, words, at, words[at])
            if opening:
                first_size, first_cue = _longest(self.phrases, words, at, OPENING + words[at])
                if first_size >= size:
                    size, cue = first_size, first_cue
                opening = cue is not None and cue.side is Side.NEUTRAL
            if cue is None:
                at += 1
                continue
            if cue not in found:
                found[cue] = " ".join(words[at : at + size])
            at += size
        if not text.isascii():
            for part, cue in self.parts:
                if part in text:
                    found.setdefault(cue, part)
        return found

    def knows(self, word: str) -> bool:
        """Whether the word by itself is a cue, other than a person's name."""
        return any(cue.name != "people" for cue in self._alone(word))

    def names_a(self, word: str, kinds: Collection[str]) -> bool:
        """Whether the word by itself is a cue of one of these names."""
        return any(cue.name in kinds for cue in self._alone(word))

    def _alone(self, word: str) -> Iterable[Cue]:
        return (cue for _, cue in self.phrases.get(word, {}).get("", ()))


@dataclass(frozen=True, slots=True)
class SmallTalk:
    """The words of messages that are nothing but manners."""

    phrases: Phrases
    glue: frozenset[str]
    parts: frozenset[str]
    longest_part: int

    def is_all_of(self, words: Sequence[str]) -> bool:
        """Whether every word is small talk, and not all are mere glue."""
        said = False
        at, end = 0, len(words)
        while at < end:
            word = words[at]
            taken, _ = _longest(self.phrases, words, at, word)
            if taken:
                said = True
            elif word in self.glue:
                taken = 1
            elif SPACELESS.fullmatch(word) and self._is_cut_up(word):
                said, taken = True, 1
            else:
                return False
            at += taken
        return said

    def has(self, word: str) -> bool:
        """Whether the word by itself is small talk or glue, in any language."""
        return word in self.glue or "" in self.phrases.get(word, {})

    def _is_cut_up(self, run: str) -> bool:
        """Whether the run can be cut into known parts, taking the longest each time."""
        at = 0
        while at < len(run):
            for size in range(min(self.longest_part, len(run) - at), 0, -1):
                if run[at : at + size] in self.parts:
                    at += size
                    break
            else:
                return False
        return True


def plain(text: str) -> str:
    """Lower case, look-alike forms folded, accents and invisible characters dropped."""
    if text.isascii():
        return text.lower()
    apart = unicodedata.normalize("NFKD", INVISIBLE.sub("", text)).casefold().replace("ı", "i")
    return unicodedata.normalize("NFC", ACCENTS.sub("", unicodedata.normalize("NFKD", apart)))


def examined(text: str) -> str:
    """The part of a message that is looked at."""
    if len(text) <= HEAD_CHARS + TAIL_CHARS:
        return text
    return f"{text[:HEAD_CHARS]}\n{text[-TAIL_CHARS:]}"


@cache
def cues() -> Cues:
    """The cues of cues.toml."""
    table = _read("cues.toml")
    named: dict[str, Cue] = {}
    entries: dict[tuple[str, ...], Cue] = {}
    parts: list[tuple[str, Cue]] = []
    for name, group in table.items():
        if not isinstance(group, dict):
            continue
        cue = named[name] = Cue(
            name.replace("_", " "), Side(group["side"]), float(group["weight"]), group.get("english", True)
        )
        for entry in _entries(group):
            entries.setdefault(entry, cue)
        parts += [(plain(part), cue) for part in group.get("parts", ())]
    return Cues(table["threshold"], table["always"], table["longest"], named, _phrases(entries), parts)


@cache
def small_talk() -> SmallTalk:
    """The words of small_talk.toml, all languages together."""
    groups = _read("small_talk.toml").values()
    manners = Cue("small talk", Side.MANNERS, 0.0)
    phrases = _phrases({entry: manners for group in groups for entry in _entries(group)})
    glue = frozenset(word for group in groups for word in WORD.findall(plain(group.get("glue", ""))))
    parts = frozenset(plain(part) for group in groups for part in group.get("parts", ()))
    return SmallTalk(phrases, glue, parts, max(map(len, parts)))


def _longest(phrases: Phrases, words: Sequence[str], at: int, first: str) -> tuple[int, Cue | None]:
    """How many words from here are the longest known phrase, and its cue; 0 when there is none."""
    seconds = phrases.get(first)
    if seconds is None:
        return 0, None
    second = words[at + 1] if at + 1 < len(words) else ""
    for rest, cue in seconds.get(second, ()) if second else ():
        if len(rest) == 1 or tuple(words[at + 1 : at + 1 + len(rest)]) == rest:
            return 1 + len(rest), cue
    for _, cue in seconds.get("", ()):
        return 1, cue
    return 0, None


def _phrases(entries: Mapping[tuple[str, ...], Cue]) -> Phrases:
    nested: dict[str, dict[str, list[tuple[tuple[str, ...], Cue]]]] = {}
    for first, *rest in sorted(entries, key=len, reverse=True):
        seconds = nested.setdefault(first, {})
        seconds.setdefault(rest[0] if rest else "", []).append((tuple(rest), entries[first, *rest]))
    return nested


def _read(name: str) -> dict[str, Any]:
    return tomllib.loads(files("recollect.language").joinpath(name).read_text(encoding="utf-8"))


def _entries(group: Mapping[str, Any]) -> Iterable[tuple[str, ...]]:
    """The words and phrases of a group, each as the words a message is cut into."""
    for phrase in (*group.get("words", "").split(), *group.get("phrases", ())):
        first, *rest = WORD.findall(plain(phrase))
        yield (OPENING + first if phrase.startswith(OPENING) else first, *rest)
