"""Read a statement: what it says of whom, and every detail in which another must not differ.

One pass over the words; nothing is understood, only recognised.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass, field

from recollect.write.settling.lexicon import (
    EVERY,
    HE,
    MARK,
    MUST,
    NOT,
    OVER,
    PERSON,
    SHE,
    TIME,
    USER,
    Entry,
    entry,
    phrases_from,
    weighs,
)
from recollect.write.settling.quantity import number_in, spelt_number
from recollect.write.settling.tokens import Token, tokens_of

_AUXILIARY = frozenset("is are was were be been being has have had am got get".split())
# "For a week" is no "every week".
_LASTING = frozenset("for in within of about take takes took lasts spent".split())
_JOINS = frozenset("and or nor und oder y o e et ou".split())
_MY = frozenset(
    "my mine our ours mein meine meinen meinem unser unsere mi mis mon ma mes notre nos mio mia miei мой моя".split()
)


@dataclass(slots=True)
class Reading:
    """What a statement holds. `words` are what it is about; the rest are details that must agree."""

    words: set[str] = field(default_factory=set)
    numbers: list[str] = field(default_factory=list)
    counted: dict[str, str] = field(default_factory=dict)
    times: set[str] = field(default_factory=set)
    names: set[str] = field(default_factory=set)
    people: set[str] = field(default_factory=set)
    marks: set[str] = field(default_factory=set)
    negated: list[str] = field(default_factory=list)
    past: set[str] = field(default_factory=set)
    present: set[str] = field(default_factory=set)
    sides: set[str] = field(default_factory=set)
    lesser: set[str] = field(default_factory=set)
    origins: set[str] = field(default_factory=set)
    # Who did it where it is said last: "sold by the user".
    agents: set[str] = field(default_factory=set)
    # What is the user's own ("my guests"), what the text opens with, and who or what comes first in it.
    owned: set[str] = field(default_factory=set)
    opening: str = ""
    lead: str = ""
    # What is said of the one who comes first: the verb, or "be" or "have".
    relation: str = ""
    # What must be done, and whether the user is spoken of at all.
    duty: str = ""
    of_user: bool = False
    # Whether it names several things, parted by commas or joined by "and".
    listed: bool = False
    # Each word and person as first met, with how many words of weight had come up to then.
    order: dict[str, int] = field(default_factory=dict)


def read(text: str) -> Reading:
    """What a statement holds."""
    plain = unicodedata.normalize("NFKC", text).replace("’", "'")
    # Where all is written large, a capital says nothing.
    reading = _Reader(tokens_of(plain), shouted=plain.isupper()).read()
    reading.listed = ", " in plain or not _JOINS.isdisjoint(reading.order)
    return reading


class _Reader:
    """Walks once over the words of one statement."""

    __slots__ = tuple(
        "_at _by _owner _result _shouted _to_compare _to_negate _tokens _uncounted _weighed _words".split()
    )

    def __init__(self, tokens: list[Token], *, shouted: bool) -> None:
        self._tokens = tokens
        self._words = [token[0] for token in tokens]
        self._shouted = shouted
        self._at = 0
        self._weighed = 0
        self._to_negate = 0
        self._to_compare = False
        self._owner = False
        self._by = False
        self._uncounted: list[str] = []
        self._result = Reading()

    def read(self) -> Reading:
        tokens, order, end = self._tokens, self._result.order, len(self._tokens)
        while self._at < end:
            token = tokens[self._at]
            word = token[0]
            known = entry(word)
            if token[1] and len(word) == 1 and word != "i" and not token[2] and not self._shouted:
                # A vitamin, a blood type, a grade.
                self._result.names.add(word.upper())
                self._take((word.upper(),), (word.upper(), True, False))
                self._at += 1
            elif known.empty:
                order.setdefault(word, self._weighed)
                self._at += 1
            elif not known.special or not self._special(known, token):
                self._plain(known, token)
                self._at += 1
        self._result.negated += [""] * self._to_negate
        self._result.numbers.sort()
        self._result.negated.sort()
        return self._result

    def _peek(self, ahead: int) -> str:
        at = self._at + ahead
        return self._words[at] if 0 <= at < len(self._words) else ""

    def _special(self, known: Entry, token: Token) -> bool:
        """Take a phrase, a number or a time, if one begins here."""
        if known.phrases:
            start = self._at + 1
            for rest, becomes in phrases_from(token[0]):
                if self._words[start : start + len(rest)] == rest:
                    self._take(becomes, token)
                    self._at += 1 + len(rest)
                    return True
        if known.each and entry(self._peek(1)).unit:
            if token[0] not in ("a", "an") or self._peek(-1) not in _LASTING:
                self._result.marks.add(EVERY)
            self._at += 1
            return True
        if known.number:
            self._number(token[0])
            return True
        return known.time != "" and self._time(known, token)

    def _number(self, word: str) -> None:
        if not word[0].isdigit():
            number, taken = spelt_number(self._words[self._at : self._at + 8])
            self._at += taken
            self._count(number)
            return
        found = number_in(word, self._peek(1))
        self._at += found.taken
        if found.time:
            self._result.times.add(found.time)
            return
        for number in found.numbers:
            self._count(number)
        if found.unit:
            self._take(entry(found.unit).parts, (found.unit, False, False))

    def _count(self, number: str) -> None:
        self._result.numbers.append(number)
        self._uncounted.append(number)

    def _time(self, known: Entry, token: Token) -> bool:
        beside = self._peek(-1)[:1] + self._peek(1)[:1]
        if known.shy and (token[2] or not token[1]) and not any(char.isdigit() for char in beside):
            # "May" and "march" are everyday words too.
            return False
        self._result.times.add(known.time)
        if known.each:
            # "Mondays" are every Monday.
            self._result.marks.add(EVERY)
        self._at += 1
        return True

    def _plain(self, known: Entry, token: Token) -> None:
        word, capital, opens = token
        result = self._result
        if known.turns:
            self._turn(known, word)
        parts = known.parts
        if result.lead and not result.relation:
            self._relate(known)
        if capital and not opens and known.verb and not self._shouted:
            result.names.add(word)
            if self._peek(-1) == "from":
                result.origins.add(word)
        if known.verb:
            if not known.past:
                result.present.add(known.verb)
            elif entry(self._peek(-1)).is_ == "be":
                # "Is married" goes on, "was married" does not.
                result.present.add(known.past)
            elif self._peek(-1) not in _AUXILIARY and self._peek(-2) not in _AUXILIARY:
                result.past.add(known.past)
        if known.verb and len(parts) == 1:
            # Nearly every word is one of weight and nothing else.
            self._weighed += 1
            self._weigh(known.verb, opens=opens)
            result.order.setdefault(word, self._weighed)
        else:
            self._take(parts, token)

    def _turn(self, known: Entry, word: str) -> None:
        """Take a word that says how the others stand to each other, or when something is so."""
        result = self._result
        if known.side:
            result.sides.add(word)
        if known.is_:
            result.present.add(known.is_)
        elif known.was:
            self._was(known)
        if known.over or (word == "to" and "prefer" in result.words):
            self._to_compare = True
        self._by = self._by or word == "by"

    def _relate(self, known: Entry) -> None:
        """Take what is said of the one who comes first; of a thing only that it is so, or has something."""
        # What has a mark says how or whether, not what: "stopped working" is about working.
        verb = known.verb if self._result.lead[0] == PERSON and len(known.parts) == 1 else ""
        self._result.relation = known.is_ or known.was or verb

    def _was(self, known: Entry) -> None:
        """What was so: "was a nurse" is over, "was moved" happened, and "was born" stays true."""
        after = self._peek(1)
        done = entry(after).past if after != "born" else ""
        if done:
            self._result.past.add(done)
        elif after != "born":
            self._result.past.add(known.was)

    def _take(self, parts: tuple[str, ...], token: Token) -> None:
        result = self._result
        if weighs(parts):
            self._weighed += 1
        for part in parts:
            if part[0] == MARK:
                self._mark(part)
            elif part[0] == TIME:
                result.times.add(part[1:])
            elif part == USER:
                result.of_user = True
                if token[0] in _MY or token[0].endswith("'s"):
                    self._owner = True
                else:
                    if self._by:
                        result.agents.add(part)
                        self._by = False
                    result.order.setdefault(part, self._weighed)
                    result.lead = result.lead or part
            elif part in (HE, SHE) and result.lead == USER and not result.people and not result.names:
                # Nobody else was spoken of: "the user sold her car".
                continue
            else:
                self._weigh(part, opens=token[2])
        result.order.setdefault(token[0], self._weighed)

    def _mark(self, part: str) -> None:
        if part == NOT:
            self._to_negate += 1
        elif part == OVER:
            self._to_compare = True
        else:
            self._result.marks.add(part)

    def _weigh(self, part: str, *, opens: bool) -> None:
        """Take a word of weight; what was waiting for one has found it."""
        result = self._result
        (result.people if part[0] == PERSON else result.words).add(part)
        result.order.setdefault(part, self._weighed)
        if self._by:
            result.agents.add(part)
            self._by = False
        result.lead = result.lead or part
        if MUST in result.marks:
            result.duty = result.duty or part
        if opens and not result.opening:
            result.opening = part
        if self._owner:
            result.owned.add(part)
            self._owner = False
        if self._to_negate:
            result.negated += [part] * self._to_negate
            self._to_negate = 0
        if self._to_compare:
            result.lesser.add(part)
            self._to_compare = False
        for number in self._uncounted:
            result.counted[part] = number
        self._uncounted.clear()
