"""What a conversation is about, in a few of its own words: those of most weight, wherever they stand."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from recollect.language.small_talk import load_small_talk
from recollect.ledger.terms import terms_of
from recollect.read.small_words import is_spaceless, split_words, stop_words_for

MAX_TERMS = 8

# Of a long message, the part that is read; of a word, what can still be one.
MAX_MESSAGE_CHARS = 4_000
MAX_WORD_CHARS = 40

# A word of this many letters is of average weight; short words tend to be common ones.
_AVERAGE_CHARS = 8

# From three letters on, a word can be what a talk is about ("car", "dog", "job"), these aside; of two, only a name.
_MIN_CHARS = 3
_FILLERS = frozenset(
    "all ask add ago aha any bit day etc far guy had has huh lot may new nor now own per saw see set two"
    " ten via yet yes yup wow".split()
)

# What a word gains by what it looks like.
_NAME, _MAYBE_NAME, _NUMBER, _JOINED = 2.0, 1.5, 1.6, 1.5
# "Planning ..." opens with what the user is doing, not with what it is about.
_GERUND = 0.8
# For each further message that says it too, and for each time it is said again.
_SHARED, _REPEATED, _MAX_REPEATS = 0.75, 0.25, 3
# The talk moves on: what was said one message earlier counts a little less.
_EARLIER = 0.9

_SENTENCE_END = re.compile(r"(?<=[.!?…:])\s+|[。！？\n]+")


@dataclass(slots=True)
class _WordStats:
    """All that is known of one word, however it was spelled."""

    spelling: str
    messages: set[int] = field(default_factory=set)
    count: int = 0
    has_capital: bool = False
    has_opening_capital: bool = False
    has_lowercase: bool = False

    def add(self, word: str, message: int, *, is_first: bool) -> None:
        """Count the word once more; inside a sentence its capital letter, or the lack of one, says something."""
        capital = word[0].isupper()
        self.messages.add(message)
        self.count += 1
        if not is_first and (capital or not self.has_capital):
            self.spelling = word
        self.has_capital |= capital and not is_first
        self.has_opening_capital |= capital and is_first
        self.has_lowercase |= not capital

    def weight(self, message_count: int) -> float:
        word = self.spelling
        chars = len(word) * (2 if is_spaceless(word) else 1)
        weight = min(chars, _AVERAGE_CHARS * 3 // 2) / _AVERAGE_CHARS * self._spelling_weight()
        repeats = min(self.count - len(self.messages), _MAX_REPEATS)
        weight *= 1 + _SHARED * (len(self.messages) - 1) + _REPEATED * repeats
        return weight * _EARLIER ** (message_count - 1 - max(self.messages))

    @property
    def term(self) -> str:
        """The word as it was spelled, but for a capital letter that only opened a sentence."""
        return self.spelling.lower() if self._is_opening_gerund() else self.spelling

    @property
    def is_informative(self) -> bool:
        """Whether the word is long enough for its kind to say what is talked about, and no filler."""
        word = self.spelling
        if is_spaceless(word) or any(char.isdigit() for char in word):
            return len(word) > 1
        if len(word) < _MIN_CHARS:
            return len(word) > 1 and (word.isupper() or self.has_capital)
        if len(word) > _MIN_CHARS or self.has_capital:
            return True
        return word.casefold() not in _FILLERS and not load_small_talk().has(word.casefold())

    def _spelling_weight(self) -> float:
        if any(char.isdigit() for char in self.spelling):
            return _NUMBER
        if self.has_capital:
            return _NAME
        if self._is_opening_gerund():
            return _GERUND
        if self.has_opening_capital and not self.has_lowercase:
            return _MAYBE_NAME
        return _JOINED if any(sign in self.spelling for sign in "-._@&+") else 1.0

    def _is_opening_gerund(self) -> bool:
        return self.has_opening_capital and not self.has_capital and self.spelling.endswith("ing")


def context_terms(texts: Sequence[str], *, question: str, limit: int = MAX_TERMS) -> list[str]:
    """At most `limit` words of `texts`, oldest text first, that say most about them; none that `question` has."""
    question_terms = set(terms_of(question[:MAX_MESSAGE_CHARS]))
    stats: dict[tuple[str, ...], _WordStats] = {}
    for at, text in enumerate(texts):
        for word, is_first in _content_words(text[:MAX_MESSAGE_CHARS]):
            key = tuple(terms_of(word))
            if not key or question_terms.issuperset(key):
                continue
            stats.setdefault(key, _WordStats(word)).add(word, at, is_first=is_first)
    ranked = sorted(
        ((one.weight(len(texts)), one.term) for one in stats.values() if one.is_informative),
        key=lambda each: -each[0],
    )
    return [term for _, term in ranked][:limit]


def _content_words(text: str) -> Iterator[tuple[str, bool]]:
    """The words that say something, each with whether it opens a sentence, where a capital letter says nothing."""
    sentences = [split_words(sentence) for sentence in _SENTENCE_END.split(text)]
    stop_words = stop_words_for([word for words in sentences for word in words])
    is_all_caps = text.isupper()
    for words in sentences:
        for index, word in enumerate(words):
            if word not in stop_words and len(word) <= MAX_WORD_CHARS:
                yield word, index == 0 or is_all_caps
