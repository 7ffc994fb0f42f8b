"""One pass over the words of a statement; nothing is understood, only recognised."""

from __future__ import annotations

from itertools import pairwise

from recollect.write.settling import small_words as small
from recollect.write.settling.dating import date_verb, is_perfect, take_being, take_what_was
from recollect.write.settling.kin import kin
from recollect.write.settling.lexicon import (
    EVERY,
    HE,
    MARK,
    MAX,
    MORE,
    MUST,
    NOT,
    OVER,
    PERSON,
    SHE,
    TIME,
    USER,
    Entry,
    entry,
    lexicon,
    phrases_from,
    weighs,
)
from recollect.write.settling.quantity import number_in, spelt_number
from recollect.write.settling.reading import Reading
from recollect.write.settling.tokens import Token


class Walk:
    """Walks once over the words of one statement."""

    __slots__ = (
        *("_at", "_words", "_tokens", "_shouted", "_result", "_weighed", "_last"),
        *("_by", "_owner", "_pivot", "_to_compare", "_rest", "_to_negate", "_uncounted"),
    )

    def __init__(self, tokens: list[Token], *, shouted: bool) -> None:
        self._tokens = tokens
        self._words = [token[0] for token in tokens]
        self._shouted = shouted
        self._at = 0
        self._weighed = 0
        # How many words of a phrase are still to come, and how many wait to be denied or compared.
        self._rest = self._to_negate = self._to_compare = 0
        self._owner = ""
        self._pivot = ""
        self._by = False
        self._last = ""
        self._uncounted: list[str] = []
        self._result = Reading()

    def read(self) -> Reading:
        tokens, order, end = self._tokens, self._result.order, len(self._tokens)
        while self._at < end:
            token = tokens[self._at]
            word = token[0]
            known = entry(word)
            if word in small.SPLITS:
                self._result.clauses.append(set())
            is_name = (len(word) == 1 and word != "i") or word in small.ALSO_NAMES
            inside = not token[2] or (word in small.ALSO_NAMES and self._peek(1) in small.BEHIND_NAMES)
            if is_name and token[1] and inside and not self._shouted:
                # A vitamin, a blood type, a grade; a name that is a small word elsewhere.
                name = word.upper() if len(word) == 1 else word
                self._result.names.add(name)
                self._take((name,), (name, True, False))
                self._at += 1
            elif known.empty:
                order.setdefault(word, self._weighed)
                self._at += 1
            elif not known.special or not self._special(known, token):
                self._plain(known, token)
                self._at += 1
        self._result.negated += [""] * self._to_negate
        self._settle_pronouns()
        if EVERY in self._result.marks and any(time[0] == "w" and time[1:].isdigit() for time in self._result.times):
            # What is so on Mondays is so weekly.
            self._result.times.discard("week")
        self._result.numbers.sort()
        self._result.negated.sort()
        return self._result

    def _settle_pronouns(self) -> None:
        """Take he or she for someone who is spoken of only later: "because of his pills the user"."""
        result = self._result
        early = result.people & {HE, SHE}
        if early and entry(self._words[0]).parts[:1] not in ((HE,), (SHE,)) and (result.of_user or result.names):
            result.people -= early
            result.pronouns |= early

    def _peek(self, ahead: int) -> str:
        at = self._at + ahead
        return self._words[at] if 0 <= at < len(self._words) else ""

    def _special(self, known: Entry, token: Token) -> bool:
        """Take a phrase, a number or a time, if one begins here."""
        if known.phrases:
            start = self._at + 1
            for rest, becomes in phrases_from(token[0]):
                if self._words[start : start + len(rest)] == rest:
                    self._rest = len(rest)
                    self._take(becomes, token)
                    self._rest = 0
                    self._date(becomes, known)
                    if not becomes:
                        # "Worked as a nurse" is over as "was a nurse" is.
                        self._light_verb(known)
                    if rest[-1:] == ["old"]:
                        # "Is seven" and "is seven years old".
                        self._result.idle.add("old")
                    self._at += 1 + len(rest)
                    return True
        if known.each and entry(self._peek(1)).unit:
            if token[0] not in ("a", "an") or (self._peek(-1) not in small.LASTING and self._is_rate()):
                self._result.marks.add(EVERY)
            self._at += 1
            return True
        if known.number and not self._names_someone(token):
            self._number(token[0])
            return True
        return known.time != "" and self._time(known, token)

    def _names_someone(self, token: Token) -> bool:
        """Whether a word for a number is a name here, by its capital: "Otto" is eight in Italian."""
        word, capital, opens = token
        return capital and word not in small.ENGLISH_NUMBERS and word.isalpha() and not (opens or self._shouted)

    def _is_rate(self) -> bool:
        """Whether "a day" tells how often or how much, not how long: "two cups a day", "waited a day"."""
        before = self._words[: self._at]
        return bool(self._result.numbers) or not small.MUCH.isdisjoint(before)

    def _light_verb(self, verb: Entry) -> None:
        if verb.past and self._peek(-1) not in small.AUXILIARY:
            self._result.past.add("be")
        elif verb.verb:
            self._result.present.add("be")

    def _date(self, parts: tuple[str, ...], verb: Entry) -> None:
        """Note whether what several words say is over, "gave up", or is so, "works from home"."""
        if weighs(parts) and self._peek(0) not in small.OF_BOTH_TIMES and not is_perfect(self._words, self._at):
            over = verb.past or verb.was or self._peek(0) in lexicon().past or self._peek(-1) in small.FINISHED
            (self._result.past if over else self._result.present).add(parts[0])

    def _number(self, word: str) -> None:
        # "Every two weeks" is not "twice a week".
        every = "every " if self._peek(-1) in ("every", "each") else ""
        if not word[0].isdigit():
            number, taken = spelt_number(self._words[self._at : self._at + 8])
            self._at += taken
            self._count(every + number)
            return
        half = (
            small.HALVES.get(self._peek(3), "") if self._words[self._at + 1 : self._at + 3] == ["in", "the"] else ""
        )
        found = number_in(word, half or self._peek(1))
        self._at += found.taken + (2 if half else 0)
        if found.time:
            self._result.times.add(found.time)
            return
        for number in found.numbers:
            self._count(every + number)
        if found.unit:
            self._take(entry(found.unit).parts, (found.unit, False, False))

    def _count(self, number: str) -> None:
        self._result.numbers.append(number)
        self._uncounted.append(number)
        if self._pivot:
            self._follow(number)

    def _time(self, known: Entry, token: Token) -> bool:
        beside = self._peek(-1)[:1] + self._peek(1)[:1]
        if known.shy and (token[2] or not token[1]) and not any(char.isdigit() for char in beside):
            # "May" and "march" are everyday words too.
            return False
        if token[0] == "last" and self._peek(-1) in small.MODALS:
            return False
        self._result.times.add(known.time)
        if token[0] in small.HABITUAL:
            self._result.order.setdefault(token[0], self._weighed)
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
        if known.doer and parts != (USER,) and self._is_told_of_someone():
            parts = known.doer
            if self._peek(1) != "of":
                (result.past if "be" in result.past else result.present).add(parts[0])
        if result.lead and not result.relation:
            self._relate(known)
        is_name = capital and bool(known.verb) and not self._shouted and (not opens or self._is_full_name(word))
        if is_name:
            self._name(word)
        if known.verb and not (is_name and known.past):
            date_verb(result, self._words, self._at, known=known, last=self._last)
        if known.verb and len(parts) == 1:
            # Nearly every word is one of weight and nothing else.
            self._weighed += 1
            self._weigh(parts[0], opens=opens)
            result.order.setdefault(word, self._weighed)
            if known.idle:
                result.idle.add(known.verb)
        else:
            self._take(parts, token)
        if word in small.PIVOTS and self._peek(1) not in small.PREPOSITIONS:
            # "Which they listen to at home" leads to nothing.
            self._pivot = word
        if self._peek(1) == "'s":
            self._owner = parts[0] if parts else word

    def _is_full_name(self, word: str) -> bool:
        """Whether the first word of a sentence begins a name of two: "Marcus Webb", "Spirited Away"."""
        after = self._tokens[self._at + 1 : self._at + 2]
        is_everyday = word in lexicon().becomes or entry(word).verb in kin()
        return not is_everyday and bool(after and after[0][1] and entry(after[0][0]).parts != (USER,))

    def _name(self, word: str) -> None:
        result = self._result
        result.names.add(word)
        before, far = self._peek(-1), self._peek(-2)
        if before == "'s":
            before, far = far, self._peek(-3)
        if before in ("from", "between"):
            result.origins.add(word)
        if before in small.DEGREES:
            result.degrees[word] = "some" if before == "little" else before
        near = far if before in ("a", "an", "the", "of") else before
        if near in small.PLACING or near in result.placed or entry(near).time:
            result.placed.add(word)

    def _is_told_of_someone(self) -> bool:
        """Whether the noun here says what someone does: "is a yoga teacher", "the manager of"."""
        if self._peek(1) == "of" and self._peek(-1) == "the":
            return True
        for back in range(1, 6):
            before = self._peek(-back)
            if before == "'s" or before in small.WHOSE:
                # "Is the user's teacher" says whose teacher, not what someone does.
                return False
            if before in ("a", "an", "the"):
                return self._peek(-back - 1) in ("is", "am", "are", "was", "were", "as")
        return False

    def _turn(self, known: Entry, word: str) -> None:
        """Take a word that says how the others stand to each other, or when something is so."""
        result = self._result
        if known.side:
            result.sides.add(word)
        if known.is_:
            take_being(result, self._words, self._at, known=known)
        elif known.was:
            take_what_was(result, self._words, self._at, known=known)
        if (known.over and not known.parts) or (word == "to" and "prefer" in result.words and self._sets_against()):
            self._to_compare = 2
        if word == "by":
            # "By nine" tells when, not by whom.
            after = self._peek(1)
            self._by = self._by or not (entry(after).time or ":" in after or self._peek(2) in small.CLOCK)

    def _sets_against(self) -> bool:
        """Whether "to" tells what is liked less: not in "prefers to rest", nor in what comes behind it."""
        return self._last != "prefer" and not any(
            after == "to" and word in small.PREFERS for word, after in pairwise(self._words)
        )

    def _relate(self, known: Entry) -> None:
        """Take what is said of the one who comes first; of a thing only that it is so, or has something."""
        # What has a mark says how or whether, not what: "stopped working" is about working.
        verb = known.verb if self._result.lead[0] == PERSON and len(known.parts) == 1 else ""
        self._result.relation = known.is_ or known.was or verb

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
                if token[0] in small.MY or token[0].endswith("'s"):
                    self._owner = USER
                elif "of" in (self._peek(-1), self._peek(-2)) and self._last:
                    result.owners.setdefault(self._last, USER)
                    result.owned.add(self._last)
                else:
                    if self._by:
                        result.agents.add(part)
                        self._by = False
                    if self._pivot:
                        self._follow(part)
                    result.order.setdefault(part, self._weighed)
                    result.lead = result.lead or part
            elif part in (HE, SHE) and (result.lead or result.of_user):
                # Someone was spoken of before: "the user sold her car".
                result.pronouns.add(part)
                if self._by:
                    result.agents.add(part)
                    self._by = False
            else:
                self._weigh(part, opens=token[2])
        result.order.setdefault(token[0], self._weighed)

    def _mark(self, part: str) -> None:
        after = self._peek(1 + self._rest)
        is_amount = entry(after).number or after in small.MONEY
        if part == NOT:
            self._to_negate += 1
        elif part == OVER and not is_amount:
            self._to_compare = 2
        elif part == OVER and self._peek(0) in small.INSTEAD:
            # Which of two numbers it is, `finer` notes.
            return
        elif part != MAX or self._rest == 0 or is_amount:
            # "Up to ten" is a limit, "moved up to Friday" is none.
            self._result.marks.add(MORE if part == OVER else part)

    def _weigh(self, part: str, *, opens: bool) -> None:
        """Take a word of weight; what was waiting for one has found it."""
        result = self._result
        self._last = part
        if part[0] == PERSON and "from" in (self._peek(-1), self._peek(-2)):
            result.origins.add(part)
        (result.people if part[0] == PERSON else result.words).add(part)
        result.clauses[-1].add(part)
        result.order.setdefault(part, self._weighed)
        if self._by:
            result.agents.add(part)
            self._by = False
        if not result.lead and part not in small.SIDES:
            result.lead = part
        if MUST in result.marks:
            result.duty = result.duty or part
        if opens and not result.opening:
            result.opening = part
        if self._pivot:
            self._follow(part)
        if self._owner:
            result.owners.setdefault(part, self._owner)
            if self._owner == USER:
                result.owned.add(part)
            self._owner = ""
        if self._to_negate:
            result.negated += [part] * self._to_negate
            self._to_negate = 0
        if self._to_compare:
            # The next two words of weight: "than office work".
            result.lesser.add(part)
            self._to_compare -= 1
        for number in self._uncounted:
            result.counted[part] = number
        self._uncounted.clear()

    def _follow(self, part: str) -> None:
        """Note what stands behind "before" or "from": the next two words of weight."""
        behind = self._result.follows.setdefault(self._pivot, set())
        behind.add(part)
        if len(behind) > 1:
            self._pivot = ""
