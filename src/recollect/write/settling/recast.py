"""Put a statement the plain way round: who acts comes first, and of two verbs for one deed the same is used."""

from __future__ import annotations

from recollect.write.settling.kin import is_being, kin
from recollect.write.settling.lexicon import MARK, PERSON, USER, entry, lexicon
from recollect.write.settling.small_words import BEFORE_NOUNS, OF_BOTH_TIMES
from recollect.write.settling.tokens import Token
from recollect.write.settling.verb_forms import going_on, past_of, present_of

_BE = frozenset("is are was were be been being am got gets get".split())
_HAVE = frozenset("has have had".split())
_OVER = frozenset("was were got been".split())
_WITHIN = frozenset("not never always also often usually just recently already still".split())
_MODALS = frozenset("used will would should must can could may might shall to".split())
# Where the one who acts, or from whom something comes, is told to the end.
_STOPS = frozenset(
    "in on at for to from with by every each because when while after before since during until last next and but "
    "yesterday today tomorrow ago who which that as if so about".split()
)
# "By bus", "by hand" and "by Friday" tell of nobody.
_NOBODY = frozenset(
    "bus car train bike bicycle plane foot hand mail email phone post default far now then heart accident noon "
    "midnight end start beginning time deadline side way means law mistake name chance".split()
)
# "Employed by" is where one works.
_LASTING = frozenset("employed born based located made followed".split())
_COMING = _BE | {"come", "comes", "came", "since"}
_THE_USER = frozenset(["user", "i", "user's"])
_USING = frozenset("use uses used using".split())
# What is done to someone, with nobody told who does it: "two men jailed for fraud".
_HARMED = frozenset(
    "killed injured wounded hurt jailed arrested detained charged sentenced freed rescued trapped evacuated "
    "hospitalized hospitalised sacked convicted acquitted dead".split()
)
_TELLING = frozenset("said says say thinks believes knows claims hopes reports".split())
_THOUGHT = frozenset("feared believed presumed".split())
_AFTER = frozenset("over near under amid into off".split())
_WITH_TO = frozenset("due next close according up down back thanks owing near".split())
_BORROWS = {"borrow": "lend", "borrows": "lends", "borrowed": "lent"}
_USERS = frozenset(["user's", "my", "their"])
_AGAIN = frozenset(["they", "he", "she"])
_VAGUE = frozenset(["something", "what"])
_HIM = {"him": "user", "me": "user", "her": "user", "them": "user", "his": "user's", "their": "user's"}
# These are done between people, the others also with places: "a degree from Stanford".
_OF_GOODS = frozenset(
    "borrow borrows borrowed buy buys bought purchase purchases purchased receive receives received learn learns "
    "learned learnt learning inherit inherits inherited rent "
    "rents rented renting lease leases leased".split()
)
_NO_CLAUSE = frozenset("because when if while who which that but although unless whenever where".split())


def recast(tokens: list[Token]) -> list[Token]:
    """The words of a statement with what is done by someone told as what someone does."""
    words = [token[0] for token in tokens]
    if not _NO_CLAUSE.isdisjoint(words):
        # Of two clauses it is not plain which words belong to which, unless the other only tells of a thing.
        that = next((at for at, word in enumerate(words) if word in _NO_CLAUSE), 0)
        return [*_from_the_giver(tokens[:that], words[:that]), *tokens[that:]] if _is_told_of(words, that) else tokens
    if (beside := _beside_the_user(words)) is not None:
        return [tokens[beside], ("and", False, False), *tokens[: beside - 1], *tokens[beside + 1 :]]
    if "than" in words:
        return _from_the_greater(tokens, words)
    if "to" in words and not _USING.isdisjoint(words):
        return _with_what(tokens, words)
    if not _VAGUE.isdisjoint(words):
        return _plainly(tokens, words)
    if words[:1] == ["leave"] and "out" in words[2:6]:
        # "Leave it out" is "avoid it".
        tokens = [("avoid", *tokens[0][1:]), *(token for token in tokens[1:] if token[0] != "out")]
        words = [token[0] for token in tokens]
    if "borrow" in words:
        tokens, words = _lent(tokens, words)
    if not _BORROWS.keys().isdisjoint(words):
        tokens, words = _from_the_lender(tokens, words)
    if "married" in words:
        return _of_the_spouse(tokens, words)
    if "by" in words:
        return _active(tokens, words)
    if _BE.isdisjoint(words) and not _HARMED.isdisjoint(words[1:4]):
        return _suffering(tokens, words)
    return _from_the_giver(tokens, words) if "from" in words else tokens


def _is_told_of(words: list[str], that: int) -> bool:
    """Whether from there on only a thing is told of that someone gave: "from her aunt, that belonged to"."""
    rest = words[that + 1 :]
    is_of_thing = words[that] in ("that", "which") and bool(
        entry("".join(rest[:1])).past or entry("".join(rest[:1])).was
    )
    return is_of_thing and "from" in words[:that] and _NO_CLAUSE.isdisjoint(rest)


def _beside_the_user(words: list[str]) -> int | None:
    """Where the user stands if named behind someone else: "Ann and I" is "I and Ann"."""
    ends = [at for at in (2, 3, 4) if at < len(words) and words[at - 1] == "and" and words[at] in ("i", "user")]
    return ends[0] if ends else None


def _from_the_greater(tokens: list[Token], words: list[str]) -> list[Token]:
    """The same told of the one who is more: "Ann is younger than Tom" is "Tom is older than Ann"."""
    than = words.index("than")
    greater = lexicon().greater.get(words[than - 1])
    end = _end_of_name(words, than + 1)
    if greater is None or words[than - 2 : than - 1] not in (["is"], ["am"], ["are"]) or end == than + 1:
        return tokens
    lesser = _moved(tokens[: than - 2])
    other = tokens[than + 1 : end]
    if not _THE_USER.isdisjoint(words[:than]):
        other = _the_users(other)
    return [*other, ("is", False, False), (greater, False, False), tokens[than], *lesser, *tokens[end:]]


def _with_what(tokens: list[Token], words: list[str]) -> list[Token]:
    """The same with what is used told last: "used a saw to cut the log" is "cut the log with a saw"."""
    use = next(at for at, word in enumerate(words) if word in _USING)
    end = _end_of_name(words, use + 1)
    # "Used to swim" and "used the car to and fro" tell of no tool.
    if end == use + 1 or words[end : end + 1] != ["to"] or words[end - 1] in _WITH_TO or end + 1 == len(words):
        return tokens
    if not entry(words[end + 1]).verb:
        return tokens
    verb = words[end + 1]
    deed = past_of(verb) if words[use] == "used" and words[use - 1] not in _BE | _HAVE else verb
    tool: list[Token] = [("with", False, False), *tokens[use + 1 : end]]
    return [*tokens[:use], (deed, False, False), *tokens[end + 2 :], *tool]


def _plainly(tokens: list[Token], words: list[str]) -> list[Token]:
    """The same without a detour: "tea is something I like" is "I like tea"."""
    at = next((at for at in range(1, len(words) - 2) if words[at] in _VAGUE and words[at - 1] in ("is", "are")), 0)
    return [*tokens[at + 1 :], *tokens[: at - 1]] if at > 1 else tokens


def _lent(tokens: list[Token], words: list[str]) -> tuple[list[Token], list[str]]:
    """The same with "let someone borrow" told as lending, and its words."""
    at = words.index("borrow")
    let = next((each for each in range(max(0, at - 4), at) if words[each] in ("let", "lets")), None)
    if let is None:
        return tokens, words
    verb = "lent" if words[let] == "let" else "lends"
    tokens = [*tokens[:let], (verb, False, False), *tokens[let + 1 : at], *tokens[at + 1 :]]
    return tokens, [token[0] for token in tokens]


def _from_the_lender(tokens: list[Token], words: list[str]) -> tuple[list[Token], list[str]]:
    """The same told of whose a thing is: "Ann borrowed Tom's car" is "Tom lent a car to Ann"."""
    at = next(at for at, word in enumerate(words) if word in _BORROWS)
    verb: Token = (_BORROWS[words[at]], False, False)
    end = _end_of_name(words, at + 1)
    if not at or "from" in words or words[at - 1] in _MODALS or end < at + 3:
        return tokens, words
    by_user = words[0] in ("user", "i") or words[:2] == ["the", "user"]
    if words[at + 1] in _USERS and not by_user:
        lender, thing = [("user", False, True)], tokens[at + 2 : end]
    elif words[at + 2] == "'s" and end > at + 3:
        lender, thing = tokens[at + 1 : at + 2], tokens[at + 3 : end]
    else:
        return tokens, words
    told = [*lender, verb, *thing, ("to", False, False), *_moved(tokens[:at]), *tokens[end:]]
    return told, [token[0] for token in told]


def _of_the_spouse(tokens: list[Token], words: list[str]) -> list[Token]:
    """The same told of the spouse: "I am married to a nurse" is "my spouse is a nurse"."""
    wed = words.index("married")
    if words[wed : wed + 2] != ["married", "to"] or wed < 2 or words[wed - 1] not in _BE:
        return tokens
    word, capital, opens = tokens[wed - 2]
    whose: list[Token] = (
        [("user's", capital, opens)] if word in ("i", "user") else [tokens[wed - 2], ("'s", False, False)]
    )
    return [*tokens[: wed - 2], *whose, ("spouse", False, False), tokens[wed - 1], *tokens[wed + 2 :]]


def _active(tokens: list[Token], words: list[str]) -> list[Token]:
    """The same with the one who acts first: "Tom was hired by Ann" is "Ann hired Tom"."""
    by = words.index("by")
    done = next((at for at in range(1, by) if entry(words[at]).past and words[at - 1] in _BE | _WITHIN), 0)
    if words[done] in _LASTING or words[by + 1 : by + 2] in (["him"], ["her"], ["them"]):
        return tokens
    end = _end_of_name(words, by + 1)
    if not done and _BE.isdisjoint(words) and _THE_USER.isdisjoint(words):
        return _active_headline(tokens, words, by, end)
    start = done
    while start and words[start - 1] in _BE | _HAVE | _WITHIN | _MODALS:
        start -= 1
    helpers = words[start:done]
    if (
        not start
        or _has_verb(words[:start])
        or _BE.isdisjoint(helpers)
        or end == by + 1
        or not _may_act(words[by + 1 : end])
    ):
        return tokens
    kept = [tokens[at] for at in range(start, done) if words[at] in _MODALS or words[at] in _WITHIN]
    if "being" in helpers:
        # "Is being sold by" is "is selling".
        kept = [tokens[at] for at in range(start, done) if words[at] != "being"]
        verb: Token = (going_on(words[done]), False, False)
    else:
        verb = tokens[done] if not _OVER.isdisjoint(helpers) else (present_of(words[done]), False, False)
    who = tokens[by + 1 : end]
    if not _THE_USER.isdisjoint(words[:by]):
        who = _the_users(who)
    return [*who, *kept, verb, *_moved(tokens[:start]), *tokens[done + 1 : by], *tokens[end:]]


def _has_verb(words: list[str]) -> bool:
    """Whether there is a clause before what is done to someone: "he learned it was caused by dust"."""
    return any(
        word in _TELLING or (entry(word).past and words[at - 1] not in BEFORE_NOUNS)
        for at, word in enumerate(words)
        if at
    )


def _active_headline(tokens: list[Token], words: list[str], by: int, end: int) -> list[Token]:
    """The same for what is done without "is": "cart pulled by an ox" is "ox pulls cart"."""
    done = next((at for at in range(max(1, by - 4), by) if _is_done(words[at])), 0)
    others = (entry(word).past for at, word in enumerate(words) if at != done)
    if not done or words[done] in _LASTING or any(others) or end == by + 1 or not _may_act(words[by + 1 : end]):
        return tokens
    verb: Token = (words[done] if words[done] in OF_BOTH_TIMES else present_of(words[done]), False, False)
    return [*tokens[by + 1 : end], verb, *_moved(tokens[:done]), *tokens[done + 1 : by], *tokens[end:]]


def _is_done(word: str) -> bool:
    """Whether a word may tell what is done to someone: "bitten", "hit"; not what marks how others stand: "wanted"."""
    return word in OF_BOTH_TIMES or entry(word).past[:1] not in ("", MARK)


def _suffering(tokens: list[Token], words: list[str]) -> list[Token]:
    """The same with the "is" that headlines leave out: "three injured in crash"."""
    done = next(at for at, word in enumerate(words) if at and word in _HARMED)
    told = words[done + 1 : done + 2]
    if (
        not told
        or told[0] not in _STOPS | _AFTER
        or told[0] == "at"
        or words[done - 1] in _THOUGHT
        or not _THE_USER.isdisjoint(words)
    ):
        return tokens
    deed: Token = ("killed", False, False) if words[done] == "dead" else tokens[done]
    return [*tokens[:done], ("are", False, False), deed, *tokens[done + 1 :]]


def _moved(tokens: list[Token]) -> list[Token]:
    """The words that opened a statement and do no longer: a capital there may now tell a name."""
    word, capital, _ = tokens[0]
    is_everyday = entry(word).verb in kin() or word.endswith(("ed", "ing", "ly"))
    is_name = capital and not is_everyday and (word not in lexicon().becomes or len(tokens) == 1)
    return [(word, capital, not is_name), *tokens[1:]]


def _from_the_giver(tokens: list[Token], words: list[str]) -> list[Token]:
    """The same told of the one who gives: "Ann bought it from Tom" is "Tom sold it to Ann"."""
    turns = lexicon().converse
    came = words.index("from")
    taken = next((at for at in range(1, came) if words[at] in turns), 0)
    end = _end_of_name(words, came + 1)
    named = bool(taken) and words[taken] in _OF_GOODS
    if not taken or end == came + 1 or not _is_someone(tokens, came + 1, end, named=named):
        return tokens
    if not _COMING.isdisjoint(words[taken + 1 : came]) or (words[taken] in _BE and entry(words[taken + 1]).past):
        # "Got divorced from him" is no gift.
        return tokens
    start = taken
    while start and words[start - 1] in _HAVE | _WITHIN | _MODALS | _BE:
        start -= 1
    if not start or not _is_someone(tokens, 0, start, named=True) or (start > 1 and words[start - 1] in _AGAIN):
        # "Bakes with a starter they got from her": what someone has is only told of.
        return tokens
    giver = tokens[came + 1 : end]
    if not _THE_USER.isdisjoint(words[:start]):
        giver = _the_users(giver)
    to: Token = ("to", False, False)
    verb: Token = (turns[words[taken]], False, False)
    return [
        *giver,
        *tokens[start:taken],
        verb,
        *tokens[taken + 1 : came],
        to,
        *_moved(tokens[:start]),
        *tokens[end:],
    ]


def _the_users(tokens: list[Token]) -> list[Token]:
    """Who is told of by "his" or "him" where the user is the one: "User got it from his mother"."""
    meant = dict(_HIM, her="user's") if len(tokens) > 1 else _HIM
    word, capital, opens = tokens[0]
    return [(meant.get(word, word), capital, opens), *tokens[1:]]


def _end_of_name(words: list[str], start: int) -> int:
    at = start
    while at < len(words) and words[at] not in _STOPS:
        at += 1
    return at


def _may_act(words: list[str]) -> bool:
    """Whether words behind "by" tell who acts; those who are counted do if they are people or act as people do."""
    first = words[0]
    known = entry(first)
    if known.number:
        return len(words) > 1 and (is_being(words[-1]) or any(part[0] == PERSON for part in entry(words[-1]).parts))
    if first in ("a", "an", "the") and words[1:]:
        first = words[1]
    return first not in _NOBODY and not known.time and not first.endswith("ing") and first[0] != "#"


def _is_someone(tokens: list[Token], start: int, end: int, *, named: bool) -> bool:
    """Whether the words tell of a person: the user, a relative, or where `named` whoever has a name."""
    for word, capital, opens in tokens[start:end]:
        parts = entry(word).parts
        if parts and (parts[0][0] == PERSON or parts[0] == USER):
            return True
        if named and capital and not opens:
            return True
    return start == 0 and end > 0 and tokens[0][1]
