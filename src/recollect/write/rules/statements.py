"""The statements of a turn in the words they were said in, for whoever can tell which of them matter."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from recollect.model.turn import Turn
from recollect.write.extraction.ground import denies
from recollect.write.rules.clauses import Clause, clauses
from recollect.write.rules.learn import is_ahead, is_unsaid, own_sentences
from recollect.write.rules.pack import Pack, pack_for
from recollect.write.sentences import Sentence, sentences
from recollect.write.dates import dated, when_of


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement as it was said, as it can be kept, with dates behind words like "tomorrow", and its day if any."""

    turn: Turn
    said: str
    content: str
    occurred_at: datetime | None


def statements(turn: Turn) -> list[Statement]:
    """What the author of a turn states in words of their own: no questions, suppositions, jokes, quotes or pastes."""
    pack = pack_for(turn.content)
    own = own_sentences(sentences(turn.content), pack)
    if any(is_unsaid(sentence, pack) for sentence in own):
        return []
    return [_kept(turn, clause, pack) for sentence in own for clause in _clauses(sentence, pack)]


def _clauses(sentence: Sentence, pack: Pack) -> Iterator[Clause]:
    found = clauses(sentence, pack)
    whole = Clause(sentence.text.rstrip(" ."), sentence.text)
    if not found:
        # The words of another language, or of a plain report, are no reason to doubt it.
        if not sentence.asks and pack.cues["states"].isdisjoint(sentence.words):
            yield whole
    elif denies(sentence.text) and not sentence.asks and not any(denies(each.said) for each in found):
        # The "no" led into a clause, and must not be lost.
        yield whole
    else:
        yield from found


def _kept(turn: Turn, clause: Clause, pack: Pack) -> Statement:
    said = clause.said
    when = when_of(said, at=turn.said_at, ahead=is_ahead("ahead", clause, pack))
    content = said if when is None else dated(said, when)
    return Statement(turn, said, f"{content[:1].upper()}{content[1:]}", None if when is None else when.start)
