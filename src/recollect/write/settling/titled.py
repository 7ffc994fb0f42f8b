"""Titles and headlines, in which every word is written large: there a capital tells no name."""

from __future__ import annotations

from recollect.write.settling.kin import is_being, kin
from recollect.write.settling.lexicon import entry, lexicon
from recollect.write.settling.tokens import Token

# Longer words are written large in a title unless they are one of these.
_SMALL = 3
_PREPOSITIONS = frozenset(
    "from with over into onto upon than that this amid after before about under until above below among along "
    "through during against between behind beside beyond within without toward towards across around ahead says "
    "said".split()
)
# Fewer large words may well be a name or two: "Marcus Webb".
_ENOUGH = 4


def untitled(tokens: list[Token]) -> list[Token]:
    """The words of a statement; where all are written large, only those that are no everyday words still are."""
    large = 0
    for word, capital, _ in tokens:
        if len(word) > _SMALL and word not in _PREPOSITIONS and word[0].isalpha():
            if not capital:
                return tokens
            large += 1
    if large < _ENOUGH:
        return tokens
    return [(word, capital and not _is_everyday(word), opens) for word, capital, opens in tokens]


def _is_everyday(word: str) -> bool:
    known, told = lexicon(), entry(word)
    # A month is told by its capital: March.
    if word in known.nations or word in known.given or told.time:
        return False
    return word in known.becomes or told.verb in kin() or told.past in kin() or is_being(word)
