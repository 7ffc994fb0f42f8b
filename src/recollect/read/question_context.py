"""Find the main terms of earlier messages, for questions that depend on them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from recollect.lazy_pattern import lazy_pattern
from recollect.ledger.tokenizer import terms_of
from recollect.read.multilingual_stopwords import StopWords, is_spaceless, normalize_word, split_words, stop_words_for
from recollect.text.small_talk import load_small_talk

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

_SENTENCE_END = lazy_pattern(r"(?<=[.!?…:])\s+|[。！？\n]+")


@dataclass(slots=True)
class _WordStats:
    """The occurrences of one word in all its spellings."""

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
        """Return the word as spelled, without the capital letter of a sentence start."""
        return self.spelling.lower() if self._is_opening_gerund() else self.spelling

    @property
    def is_informative(self) -> bool:
        """Return whether the word is long enough to name a topic, and no filler."""
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
    """Return at most `limit` main words of `texts` (oldest first) that are not in `question`."""
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
    """Return the content words, each with whether it begins a sentence."""
    sentences = [split_words(sentence) for sentence in _SENTENCE_END.split(text)]
    stop_words = stop_words_for([word for words in sentences for word in words])
    is_all_caps = text.isupper()
    for words in sentences:
        for index, word in enumerate(words):
            if word not in stop_words and len(word) <= MAX_WORD_CHARS:
                yield word, index == 0 or is_all_caps


# Who writes this much has said what is meant.
MAX_FRAGMENT_CHARS = 200

# Of scripts without spaces: about as many characters as make a word.
_CHARS_PER_WORD = 2


def needs_context(question: str) -> bool:
    """Return whether the question does not say what it is about.

    It does when it has no word of weight ("How much?", "Tell me more"), when it has a single one that is neither a
    name nor of the speaker's own life ("The cost?"), when it goes on with what was said ("And Maui?", "What about
    the hotel?"), or when it points back with few words besides ("Is it expensive?").
    """
    if len(question) > MAX_FRAGMENT_CHARS:
        return False
    words = split_words(question)
    stop_words = stop_words_for(words)
    content_words = [word for word in words if word not in stop_words and terms_of(word)]
    weight = sum(_weight(word) for word in content_words)
    if weight == 0:
        return True
    has_name = not stop_words.nouns_are_capital and any(_is_name(word) for word in content_words if word != words[0])
    if normalize_word(words[0]) in stop_words.opening and weight <= 1:
        return True
    if weight <= 2 and any(
        _join_words(words).startswith(_join_words(split_words(phrase))) for phrase in stop_words.phrases
    ):
        return True
    if _refers_back(words, stop_words) and weight <= (1 if has_name else 2):
        return True
    is_own = any(normalize_word(word) in stop_words.own for word in words)
    return weight == 1 and not is_own and not has_name


def picks_earlier_item(question: str) -> bool:
    """Return whether the question chooses among earlier items ("the other one"), which terms cannot resolve."""
    words = split_words(question[:MAX_FRAGMENT_CHARS])
    picking = stop_words_for(words).picking
    return any(normalize_word(word) in picking for word in words)


def _refers_back(words: list[str], stop_words: StopWords) -> bool:
    plain_words = [normalize_word(word) for word in words]
    for at, word in enumerate(plain_words):
        if word not in stop_words.pointing and word not in stop_words.picking:
            continue
        following = plain_words[at + 1] if at + 1 < len(plain_words) else ""
        # "... that I moved", "das Budget": a word that joins two clauses, or an article.
        if word in stop_words.light and (
            following in stop_words.own or (following and following not in stop_words.all)
        ):
            continue
        return True
    return False


def _join_words(words: list[str]) -> str:
    return " ".join([*map(normalize_word, words), ""])


def _is_name(word: str) -> bool:
    return word[0].isupper() or word[0].isdigit()


def _weight(word: str) -> int:
    return max(1, len(word) // _CHARS_PER_WORD) if is_spaceless(word) else 1
