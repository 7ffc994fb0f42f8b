"""Split text into words as spelled, and find the stop words of its language."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from recollect.frozen_dataclass import frozen_dataclass
from recollect.lazy_pattern import lazy_pattern
from recollect.ledger.tokenizer import STOP_WORDS

# A word may hold signs between its letters ("payment-service", "node.js", "10:30") and begin as a price does.
# Vowel signs and accents that stand alone are no letters to `\w`.
_LETTER = r"[\w\u0300-\u036f\u0900-\u109f\u1780-\u17ff]"
_WORD = lazy_pattern(rf"[$€£¥₹]?{_LETTER}+(?:(?:[.'’@&+\-]|(?<=\d)[,:](?=\d)){_LETTER}+)*%?")
_HAN = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003134f"
_KANA = "\u3040-\u30ff"
_SPACELESS = lazy_pattern(f"([{_KANA}{_HAN}]+)")
_HAS_KANA = lazy_pattern(f"[{_KANA}]")
# "l'autre" and "d'Anna" are two words, "L'Oréal" is one.
_ELISION = lazy_pattern(
    r"([cdjlmnst]|qu|dell|all|nell|sull)['’](?=\w)|([CDJLMNST]|Qu|Dell|All|Nell|Sull)['’](?=[a-zà-ÿ])"
)

# So many words tell the language of a text.
_MAX_DETECTION_WORDS = 100


@frozen_dataclass
class StopWords:
    """The stop words of one language; multilingual_stopwords.toml explains each kind."""

    light: frozenset[str]
    pointing: frozenset[str]
    picking: frozenset[str]
    own: frozenset[str]
    opening: frozenset[str]
    phrases: tuple[str, ...]
    nouns_are_capital: bool
    all: frozenset[str]

    def __contains__(self, word: str) -> bool:
        return normalize_word(word) in self.all


def normalize_word(word: str) -> str:
    """Return a word in the form of the tables."""
    return word.casefold().replace("’", "'")


def split_words(text: str) -> list[str]:
    """Return the words in order, as spelled; scripts without spaces are split at their stop words."""
    pattern = _stop_word_pattern("ja" if _HAS_KANA.search(text) else "zh")
    words: list[str] = []
    for word in _WORD.findall(text):
        for run in _SPACELESS.split(word):
            if is_spaceless(run):
                words += [part for part in pattern.split(run) if part]
            elif run.strip("_"):
                words += _split_elision(run)
    return words


def _split_elision(word: str) -> list[str]:
    elided = _ELISION.match(word)
    return [elided.group()[:-1], word[elided.end() :]] if elided else [word]


def is_spaceless(word: str) -> bool:
    """Return whether a word is of a script without spaces."""
    return _SPACELESS.match(word) is not None


def stop_words_for(words: Sequence[str]) -> StopWords:
    """Return the stop words of the language that most of `words` belong to; English if unclear."""
    return _languages()[detect_language(words)]


def detect_language(words: Sequence[str]) -> str:
    """Return the code of the language with most of `words` among its small words; "en" if there are none."""
    counts = dict.fromkeys(_languages(), 0)
    languages_of = _languages_of_words()
    for word in words[:_MAX_DETECTION_WORDS]:
        for name in languages_of.get(normalize_word(word), ()):
            counts[name] += 1
    return max(counts, key=counts.__getitem__)


@cache
def _languages() -> dict[str, StopWords]:
    text = Path(__file__).with_name("multilingual_stopwords.toml").read_text(encoding="utf-8")
    # English is first, and so wins a draw.
    return {name: _parse_language(name, table) for name, table in tomllib.loads(text).items()}


@cache
def _languages_of_words() -> dict[str, tuple[str, ...]]:
    words = frozenset[str]().union(*(each.all for each in _languages().values()))
    return {word: tuple(name for name, each in _languages().items() if word in each.all) for word in words}


def _parse_language(name: str, table: dict[str, Any]) -> StopWords:
    kinds = {kind: frozenset(table[kind].split()) for kind in ("light", "pointing", "picking", "own", "opening")}
    if name == "en":
        kinds["light"] |= STOP_WORDS
    return StopWords(
        **kinds,
        phrases=tuple(table["phrases"]),
        nouns_are_capital=table.get("nouns_are_capital", False),
        all=frozenset().union(*kinds.values()),
    )


@cache
def _stop_word_pattern(language: str) -> re.Pattern[str]:
    longest_first = sorted(_languages()[language].all, key=len, reverse=True)
    return re.compile(f"({'|'.join(map(re.escape, longest_first))})")
