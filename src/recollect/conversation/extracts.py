"""Sum up without a model: the sentences that tell most, word for word, marked as what they are.

No sentence is made here. What was picked earlier can be picked again beside what came since, so that a running
summary keeps within its room.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from recollect.ledger.terms import terms_of
from recollect.model.memory import text_hash
from recollect.model.traits import Trait, flags_in, traits_of
from recollect.model.turn import Role, Turn
from recollect.write.screening.imperatives import imperative_in
from recollect.write.screening.others import ELIDED
from recollect.write.screening.redact import redact
from recollect.write.sentences import sentences

BY_USER = "The user said:"
BY_ASSISTANT = "The assistant said:"

# What tells least beside the best is left out, whatever room there is.
_LEAST_SHARE = 0.3
# A sentence whose words are so far among those picked tells nothing more.
_TOLD_ALREADY = 0.8
_MOST_SENTENCES = 8
# With fewer words a sentence that is about nothing in particular is a filler.
_TELLING_TERMS = 4
# So much is read of all turns together; of each at least so much.
_MOST_READ_CHARS = 100_000
_LEAST_READ_CHARS = 400
_BONUS = {
    Trait.COUNTS: 2.0,
    Trait.STANDING: 2.0,
    Trait.PREFERS: 2.0,
    Trait.FIRST_PERSON: 1.5,
    Trait.TELLS_TIME: 1.0,
    Trait.ASKS: -2.0,
}
_QUOTED = re.compile("“([^“”]*)”")
_MARKS = str.maketrans({"“": "'", "”": "'", "\n": " "})


@dataclass(frozen=True, slots=True)
class Extracts:
    """Picked sentences as one text; empty if there was nothing to pick."""

    text: str = ""
    by_user: bool = True


@dataclass(frozen=True, slots=True)
class _Said:
    text: str
    terms: frozenset[str]
    bonus: float


def extracts(turns: Sequence[Turn], *, most_chars: int, earlier: Sequence[str] = ()) -> Extracts:
    """What the user said that tells most, in the order it was said; of the assistant's only if the user said nothing.

    `earlier` are sentences of the user's that were picked before.
    """
    own = [_said(text, None) for text in earlier]
    share = max(_LEAST_READ_CHARS, _MOST_READ_CHARS // max(1, len(turns)))
    own += [_said(text, turn) for turn in turns if turn.role is Role.USER for text in _sentences(turn, share)]
    if picked := _pick(own, most_chars):
        return Extracts(_written(BY_USER, picked))
    others = [turn for turn in turns if turn.role is Role.ASSISTANT]
    # What an assistant says may inform, never instruct.
    told = [_said(text, turn) for turn in others for text in _sentences(turn, share) if not imperative_in(text)]
    if picked := _pick(told, most_chars):
        return Extracts(_written(BY_ASSISTANT, picked), by_user=False)
    return Extracts()


def split_extracts(text: str) -> tuple[str, list[str]]:
    """A summary as what was written about the user, and what was quoted of them."""
    prose, mark, quoted = text.rpartition(BY_USER)
    if not mark or (prose and not prose.endswith("\n")):
        return text.strip(), []
    return prose.strip(), _QUOTED.findall(quoted)


def _sentences(turn: Turn, most_chars: int) -> Iterable[str]:
    """What was said in a turn, a sentence each; what is not speech is left out, if anything else is there."""
    # The log may hold secrets; what is made of it may not.
    whole = redact(turn.content).text
    text = whole
    if len(text) > most_chars:
        # No sentence may be cut: half of it could say something else.
        text = text[: 1 + max(text.rfind(end, 0, most_chars) for end in (". ", "! ", "? ", "\n"))]
    found = [each.text for each in sentences(text)]
    # Of a turn that is all code or one long run, the beginning says at least what it is.
    return found or [whole.strip()[:200]]


def _said(text: str, turn: Turn | None) -> _Said:
    plain = " ".join(text.translate(_MARKS).split())
    bonus = 0.0
    if turn is not None:
        flags = flags_in(traits_of(replace(turn, content=plain, kept=None).as_memory()))
        bonus = sum(weight for trait, weight in _BONUS.items() if trait in flags)
    else:
        # It was picked before among many: that counts like being about the user.
        bonus = _BONUS[Trait.FIRST_PERSON] + (_BONUS[Trait.COUNTS] if any(map(str.isdigit, plain)) else 0.0)
    return _Said(plain, frozenset(terms_of(plain)), bonus - (1.0 if ELIDED in plain else 0.0))


def _pick(said: Sequence[_Said], most_chars: int) -> list[str]:
    """The best sentences that fit, in their order."""
    said = [each for each in said if each.bonus > 0 or len(each.terms) >= _TELLING_TERMS] or said
    weights = _weights(said)
    best_first = sorted(range(len(said)), key=lambda at: -weights[at])
    least = max(weights, default=0.0) * _LEAST_SHARE
    picked: list[int] = []
    told: set[str] = set()
    seen: set[str] = set()
    room = most_chars
    for at in best_first:
        each = said[at]
        mark = text_hash(each.text)
        repeats = bool(each.terms) and len(each.terms & told) >= _TOLD_ALREADY * len(each.terms)
        if weights[at] < least or mark in seen or (picked and repeats) or not each.text:
            continue
        if len(each.text) > room:
            if picked:
                continue
            each = replace(each, text=each.text[: max(room, 1)].rstrip() + "…")
            said = [*said[:at], each, *said[at + 1 :]]
        picked.append(at)
        told |= each.terms
        seen.add(mark)
        room -= len(each.text) + 3
        if len(picked) == _MOST_SENTENCES:
            break
    return [said[at].text for at in sorted(picked)]


def _weights(said: Sequence[_Said]) -> list[float]:
    """How much each tells: words the talk comes back to, for its length, and what it is made of."""
    often = Counter(term for each in said for term in each.terms)
    weights = []
    for each in said:
        about = sum(1.0 + math.log(often[term]) for term in each.terms) / math.sqrt(len(each.terms) or 1)
        weights.append(max(0.0, about + each.bonus))
    return weights


def _written(by: str, picked: Sequence[str]) -> str:
    return f"{by} {' '.join(f'“{text}”' for text in picked)}"
