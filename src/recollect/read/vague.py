"""Whether a question can be looked up alone, or needs what was said before it. No model is asked."""

from __future__ import annotations

from recollect.ledger.terms import terms_of
from recollect.read.small_words import StopWords, is_spaceless, normalize_word, split_words, stop_words_for

# Who writes this much has said what is meant.
MAX_FRAGMENT_CHARS = 200

# Of scripts without spaces: about as many characters as make a word.
_CHARS_PER_WORD = 2


def needs_context(question: str) -> bool:
    """Whether the question leaves out what it is about.

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
    """Whether the question chooses among things said before ("the other one"): no list of terms can say which."""
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
