"""What a conversation is about, in a few of its own words: those of most weight, wherever they stand."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from recollect.language.small_talk import small_talk
from recollect.ledger.terms import terms_of
from recollect.read.small_words import is_spaceless, small_words_of, words_of

MAX_TERMS = 8

# Of a long message, the part that is read; of a word, what can still be one.
MAX_MESSAGE_CHARS = 4_000
MAX_WORD_CHARS = 40

# A word of this many letters is of average weight; short words tend to be common ones.
_AVERAGE_CHARS = 8

# From three letters on, a word can be what a talk is about ("car", "dog", "job"), these aside; of two, only a name.
_LEAST_CHARS = 3
_FILLERS = frozenset(
    "all ask add ago aha any bit day etc far guy had has huh lot may new nor now own per saw see set two"
    " ten via yet yes yup wow".split()
)

# What a word gains by what it looks like.
_NAME, _MAYBE_NAME, _NUMBER, _JOINED = 2.0, 1.5, 1.6, 1.5
# "Planning ..." opens with what the user is doing, not with what it is about.
_DOING = 0.8
# For each further message that says it too, and for each time it is said again.
_SHARED, _REPEATED, _MAX_REPEATS = 0.75, 0.25, 3
# The talk moves on: what was said one message earlier counts a little less.
_EARLIER = 0.9

_SENTENCE_END = re.compile(r"(?<=[.!?…:])\s+|[。！？\n]+")


@dataclass(slots=True)
class _Seen:
    """All that is known of one word, however it was spelled."""

    spelling: str
    messages: set[int] = field(default_factory=set)
    times: int = 0
    capital: bool = False
    opening_capital: bool = False
    small: bool = False

    def heard(self, word: str, message: int, *, opens: bool) -> None:
        """Count the word once more; inside a sentence its capital letter, or the lack of one, says something."""
        capital = word[0].isupper()
        self.messages.add(message)
        self.times += 1
        if not opens and (capital or not self.capital):
            self.spelling = word
        self.capital |= capital and not opens
        self.opening_capital |= capital and opens
        self.small |= not capital

    def weight(self, messages: int) -> float:
        word = self.spelling
        chars = len(word) * (2 if is_spaceless(word) else 1)
        weight = min(chars, _AVERAGE_CHARS * 3 // 2) / _AVERAGE_CHARS * self._looks()
        repeats = min(self.times - len(self.messages), _MAX_REPEATS)
        weight *= 1 + _SHARED * (len(self.messages) - 1) + _REPEATED * repeats
        return weight * _EARLIER ** (messages - 1 - max(self.messages))

    @property
    def term(self) -> str:
        """The word as it was spelled, but for a capital letter that only opened a sentence."""
        return self.spelling.lower() if self._is_doing() else self.spelling

    @property
    def says_enough(self) -> bool:
        """Whether the word is long enough for its kind to say what is talked about, and no filler."""
        word = self.spelling
        if is_spaceless(word) or any(char.isdigit() for char in word):
            return len(word) > 1
        if len(word) < _LEAST_CHARS:
            return len(word) > 1 and (word.isupper() or self.capital)
        if len(word) > _LEAST_CHARS or self.capital:
            return True
        return word.casefold() not in _FILLERS and not small_talk().has(word.casefold())

    def _looks(self) -> float:
        if any(char.isdigit() for char in self.spelling):
            return _NUMBER
        if self.capital:
            return _NAME
        if self._is_doing():
            return _DOING
        if self.opening_capital and not self.small:
            return _MAYBE_NAME
        return _JOINED if any(sign in self.spelling for sign in "-._@&+") else 1.0

    def _is_doing(self) -> bool:
        return self.opening_capital and not self.capital and self.spelling.endswith("ing")


def context_terms(texts: Sequence[str], *, question: str, limit: int = MAX_TERMS) -> list[str]:
    """At most `limit` words of `texts`, oldest text first, that say most about them; none that `question` has."""
    asked = set(terms_of(question[:MAX_MESSAGE_CHARS]))
    seen: dict[tuple[str, ...], _Seen] = {}
    for at, text in enumerate(texts):
        for word, opens in _weighty(text[:MAX_MESSAGE_CHARS]):
            key = tuple(terms_of(word))
            if not key or asked.issuperset(key):
                continue
            seen.setdefault(key, _Seen(word)).heard(word, at, opens=opens)
    weighed = sorted(
        ((one.weight(len(texts)), one.term) for one in seen.values() if one.says_enough), key=lambda each: -each[0]
    )
    return [term for _, term in weighed][:limit]


def _weighty(text: str) -> Iterator[tuple[str, bool]]:
    """The words that say something, each with whether it opens a sentence, where a capital letter says nothing."""
    sentences = [words_of(sentence) for sentence in _SENTENCE_END.split(text)]
    small = small_words_of([word for words in sentences for word in words])
    shouted = text.isupper()
    for words in sentences:
        for place, word in enumerate(words):
            if word not in small and len(word) <= MAX_WORD_CHARS:
                yield word, place == 0 or shouted
