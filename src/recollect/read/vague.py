"""Whether a question can be looked up alone, or needs what was said before it. No model is asked."""

from __future__ import annotations

from recollect.ledger.terms import terms_of
from recollect.read.small_words import SmallWords, is_spaceless, plain, small_words_of, words_of

# Who writes this much has said what is meant.
MAX_VAGUE_CHARS = 200

# Of scripts without spaces: about as many characters as make a word.
_CHARS_A_WORD = 2


def is_vague(question: str) -> bool:
    """Whether the question leaves out what it is about.

    It does when it has no word of weight ("How much?", "Tell me more"), when it has a single one that is neither a
    name nor of the speaker's own life ("The cost?"), when it goes on with what was said ("And Maui?", "What about
    the hotel?"), or when it points back with few words besides ("Is it expensive?").
    """
    if len(question) > MAX_VAGUE_CHARS:
        return False
    words = words_of(question)
    small = small_words_of(words)
    weighty = [word for word in words if word not in small and terms_of(word)]
    weight = sum(_weight(word) for word in weighty)
    if weight == 0:
        return True
    names = not small.nouns_are_capital and any(_is_name(word) for word in weighty if word != words[0])
    if plain(words[0]) in small.opening and weight <= 1:
        return True
    if weight <= 2 and any(_spaced(words).startswith(_spaced(words_of(phrase))) for phrase in small.phrases):
        return True
    if _points_back(words, small) and weight <= (1 if names else 2):
        return True
    own = any(plain(word) in small.own for word in words)
    return weight == 1 and not own and not names


def picks_one(question: str) -> bool:
    """Whether the question chooses among things said before ("the other one"): no list of terms can say which."""
    words = words_of(question[:MAX_VAGUE_CHARS])
    picking = small_words_of(words).picking
    return any(plain(word) in picking for word in words)


def _points_back(words: list[str], small: SmallWords) -> bool:
    said = [plain(word) for word in words]
    for at, word in enumerate(said):
        if word not in small.pointing and word not in small.picking:
            continue
        following = said[at + 1] if at + 1 < len(said) else ""
        # "... that I moved", "das Budget": a word that joins two clauses, or an article.
        if word in small.light and (following in small.own or (following and following not in small.all)):
            continue
        return True
    return False


def _spaced(words: list[str]) -> str:
    return " ".join([*map(plain, words), ""])


def _is_name(word: str) -> bool:
    return word[0].isupper() or word[0].isdigit()


def _weight(word: str) -> int:
    return max(1, len(word) // _CHARS_A_WORD) if is_spaceless(word) else 1
