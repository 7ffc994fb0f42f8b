"""Words that mean one thing here and another there, told apart by the words beside them."""

from __future__ import annotations

from recollect.write.settling.kin import is_being
from recollect.write.settling.lexicon import PERSON, entry
from recollect.write.settling.small_words import CHILDREN, WHOSE
from recollect.write.settling.tokens import LACKING, Token

_DOUBLE = frozenset(
    "called left under below doctor professor prof consider considers considered before following down aged "
    "pair little small ex broke free over".split()
)
_TITLES = frozenset("doctor professor prof".split())
_DETERMINES = frozenset("a an the my our his her their your user's 's".split())
_WAYS = frozenset(
    "road roads street streets path paths trail trails track tracks lane sidewalk pavement highway alley aisle "
    "hallway corridor avenue motorway footpath".split()
)
_BEING = frozenset("is am are was were been started".split())
_MONEY = frozenset("$€£¥₹")
_SUBSTANCES = frozenset(
    "gluten sugar dairy lactose alcohol caffeine nut peanut meat fat salt egg soy wheat drug smoke debt tax".split()
)
_PLACING = frozenset(["in", "from", "to"])
_ENDING = frozenset(["", "now", "and", "but", "since", "for"])
# What is no more.
FINISHED = "overandout"


# English words that are small words elsewhere, each with a form that is nothing but English.
_ENGLISH = {
    "hat": "hats",
    "van": "vans",
    "bin": "bins",
    "den": "dens",
    "pour": "pours",
    "con": "cons",
    "sin": "sins",
    "ai": "ais",
    "mit": "mits",
    "als": "alses",
    "est": "ests",
    # In German it is the boss.
    "chef": "cook",
    "chefs": "cooks",
}
_CUES = _DOUBLE | _ENGLISH.keys() | {"turkey"}
_OF_ENGLISH = frozenset("the with from user user's are and has his her their my of wearing".split())


def by_sense(tokens: list[Token]) -> list[Token]:
    """The words with those of two meanings put in a word of one: "called at nine", "called Rex"."""
    if _CUES.isdisjoint([token[0] for token in tokens]):
        return tokens
    is_english = any(token[0] in _OF_ENGLISH for token in tokens)
    found: list[Token] = []
    for at, token in enumerate(tokens):
        before = tokens[at - 1][0] if at else ""
        after: Token = tokens[at + 1] if at + 1 < len(tokens) else ("", False, False)
        if token[0] in _ENGLISH:
            meant = _ENGLISH[token[0]] if is_english or before in _DETERMINES else token[0]
        elif token[0] == "turkey":
            # Who likes turkey need not like Turkey.
            meant = token[0] if token[1] or before in _PLACING else "turkeycock"
        elif token[0] == "pair":
            # "A pair of dogs" are two, "a pair of glasses" is one.
            meant = "two" if after[0] == "of" and _are_beings(tokens[at + 2 : at + 5]) else "pair"
        elif token[0] == "down":
            # Who walks down a road walks along it.
            meant = "along" if any(each[0] in _WAYS for each in tokens[at + 1 : at + 5]) else "down"
        else:
            meant = _meant(token[0], before, after) if token[0] in _DOUBLE else token[0]
        if meant:
            found.append((meant, *token[1:]))
    return found


def _are_beings(tokens: list[Token]) -> bool:
    return any(is_being(token[0]) or _are_kin(token[0]) for token in tokens)


def _are_kin(word: str) -> bool:
    return any(part[0] == PERSON for part in entry(word).parts)


def _meant(word: str, before: str, after: Token) -> str:
    """The word in this place; nothing for a title, for "Dr. Osei" is Osei."""
    if word == "called":
        return word if after[1] or not after[0] or before == "is" else "phoned"
    if word.startswith("consider"):
        return word if after[0].endswith("ing") else "think"
    if word == "before":
        # "Has never been there before."
        return word if after[0] else ""
    if word in ("little", "small"):
        # A small child is young, and so is a little girl, unless she is the daughter: "my little girl".
        return "young" if after[0] in CHILDREN and before not in WHOSE else word
    if word == "ex":
        # "My ex" is someone, an ex-minister is a former one.
        return "former" if is_being(after[0]) and not _are_kin(after[0]) else word
    if word == "aged":
        # "Died aged 90" and "died at 90".
        return "" if entry(after[0]).number else word
    if word == "free":
        # "Gluten free" is written with a hyphen or without.
        return LACKING if before in _SUBSTANCES else word
    if word == "over":
        # What is over is no more; who is over 30 is older.
        return FINISHED if before in _BEING and after[0] in _ENDING else word
    if word == "broke":
        # Who broke a vase need not be broke.
        return "penniless" if before in _BEING else word
    if word == "following":
        return word if before in _BEING else "after"
    if word == "left":
        return "leftward" if before in _DETERMINES or after[0] in ("hand", "handed") else word
    if word in _TITLES:
        return "" if after[1] and before not in _DETERMINES else word
    if after[0].endswith("ion"):
        # "Under renovation."
        return ""
    return word if entry(after[0]).number or after[0] in _MONEY else "beneath"
