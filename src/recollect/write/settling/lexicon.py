"""What words do to a statement, as `lexicon.toml` tells it: read once, when first asked for."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, TypeAlias

import Stemmer

from recollect.model.at_hand import at_hand

# What a word or a phrase counts as: words, and what begins with one of the three signs.
Parts: TypeAlias = tuple[str, ...]
Phrase: TypeAlias = tuple[list[str], Parts]

# A mark must be the same in two statements that say the same; a person is someone a statement is about.
MARK, PERSON, TIME = "@", "~", "#"
NOT, EVERY, OVER, FUTURE, MUST, ENDED = "@not", "@every", "@over", "@future", "@must", "@ended"
MORE, MAX, PLEASE, WANT, PAST = "@more", "@max", "@please", "@want", "@past"
SOME, GROUP = "@some", "@group"
USER, US, HE, SHE = "~user", "~us", "~he", "~she"

_SIGNS = (MARK, PERSON, TIME)
_EACH = frozenset(["a", "an", "per", "each", "every"])
# Light verbs still tell when something was so.
_WAS = {"was": "be", "were": "be", "had": "have"}
_IS = {"is": "be", "are": "be", "am": "be", "has": "have", "have": "have"}
_MORE_FORMS = {
    "get": ("got", "gotten"),
    "have": ("has", "had"),
    "carry": ("carries", "carried"),
    "rely": ("relies", "relied"),
}
# "Fluently" is how one is fluent; shorter words that end alike are mostly no adverbs.
_ADVERB = 7
_SCALES = frozenset(["dozen", "hundred", "thousand", "million", "billion"])
# Without a cache of its own: that one could not be made to let go of what was erased.
_OLD_SPELLINGS = ("paed", "haem", "anaem", "anaes", "gynaec", "orthopaed")
_NO_PAST = ("eed", "hundred", "sacred", "naked", "wicked")
# A word's end in Britain and in America, and what must stand before it: "colour" but not "pour", "realise" but not
# "raise", "travelled" but not "pulled".
_SPELLINGS = (
    (re.compile(r"([^aeiou]*[aeiou].*)our(|s|ed|ing|ful|ite)"), r"\1or\2"),
    (re.compile(r"([^aeiou]*[aeiou].*[^aeiou])is(e|es|ed|ing|ation|er)"), r"\1iz\2"),
    (re.compile(r"([^aeiou]*[aeiou].*[aeiou])ll(ed|ing)"), r"\1l\2"),
    (re.compile(r"(def|off|lic|pret)ence(s?)"), r"\1ense\2"),
)
_stemmer = Stemmer.Stemmer("english", 0)


@dataclass(frozen=True, slots=True)
class Lexicon:
    """Words by what they do. `becomes` has what a word counts as; a light one counts as nothing."""

    becomes: Mapping[str, Parts]
    phrases: Mapping[str, tuple[Phrase, ...]]
    times: Mapping[str, str]
    shy: frozenset[str]
    units: frozenset[str]
    numbers: Mapping[str, int]
    scales: Mapping[str, int]
    past: Mapping[str, str]
    heads: Mapping[str, Parts]
    doers: Mapping[str, str]
    idle: frozenset[str]
    near: tuple[str, ...]
    apart: Mapping[str, frozenset[str]]
    opposite: Mapping[str, frozenset[str]]
    over: frozenset[str]
    converse: Mapping[str, str]
    bodies: frozenset[str]
    orders: frozenset[str]
    kinds: Mapping[str, str]
    greater: Mapping[str, str]
    nations: frozenset[str]
    demonyms: frozenset[str]
    given: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """All that is known of one word.

    An `empty` one is passed over, a `special` one may begin something longer, one that `turns` acts on the others.
    """

    parts: Parts
    time: str
    shy: bool
    each: bool
    unit: bool
    number: bool
    phrases: bool
    side: bool
    over: bool
    was: str
    is_: str
    verb: str
    past: str
    doer: Parts
    idle: bool
    turns: bool
    empty: bool
    special: bool


@cache
def lexicon() -> Lexicon:
    """The words that ship with Recollect."""
    told, nations = _toml("lexicon.toml"), _toml("nations.toml")
    for more in (_toml("everyday.toml"), _toml("news.toml"), _toml("retold.toml"), nations):
        told = _both(told, more)
    forms = _toml("forms.toml")
    becomes = _becomes(told)
    past = forms["irregular"] | _pairs(told["past"]["words"])
    return Lexicon(
        becomes=becomes,
        phrases=_phrases(told["phrases"] | _inflected(told["phrasal"], past), becomes),
        times=_times(told["times"]) | _pairs(told["times"]["alias"]),
        shy=frozenset(told["times"]["shy"].split()),
        units=frozenset(told["times"]["units"].split()),
        numbers=_values(told["numbers"]["words"]),
        scales=_values(told["numbers"]["scales"]),
        past=past,
        heads=_heads(told["same"]["groups"], becomes),
        doers=forms["doers"] | _pairs(told["doers"]),
        idle=frozenset(form for word in told["idle"].split() for form in (word, stem(word))),
        near=tuple(told["near"]["groups"]),
        apart=_both_ways(told["apart"]["pairs"]),
        opposite=_both_ways(told["sides"]["pairs"]),
        over=frozenset(told["sides"]["over"].split()),
        converse=_pairs(told["converse"]),
        bodies=frozenset(told["bodies"].split()),
        orders=frozenset(told["orders"].split()),
        greater=_pairs(told["greater"]),
        nations=frozenset(" ".join(nations["same"]["groups"]).split()),
        demonyms=frozenset(word for group in nations["same"]["groups"] for word in group.split()[1:]),
        given=frozenset(told["given"].split()),
        kinds={stem(kind): PERSON + what for kind, what in _pairs(told["kinds"]).items()},
    )


def _toml(name: str) -> dict[str, Any]:
    return tomllib.loads((files(__package__) / name).read_text(encoding="utf-8"))


def _both(told: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """What two files tell: lists and lines one behind the other, of phrases the later."""
    found = dict(told)
    for name, added in more.items():
        known: Any = told.get(name)
        if name in ("phrases", "phrasal"):
            found[name] = known | added
        elif isinstance(known, Mapping):
            found[name] = _both(known, added)
        elif isinstance(known, list):
            found[name] = [*known, *(added.split("\n") if isinstance(added, str) else added)]
        else:
            found[name] = added if known is None else f"{known} {added}"
    return found


@at_hand(1 << 14)
def entry(word: str) -> Entry:
    """All that is known of one word in small letters."""
    known = lexicon()
    time, every = _time_of(word, known)
    number = word in known.numbers or word[:1].isdigit() or word in _SCALES
    parts = _parts_of(word, known)
    base = known.past.get(word) or (
        word if word.endswith("ed") and len(word) > 4 and not word.endswith(_NO_PAST) else ""
    )
    past = _parts_of(base, known)
    traits = {
        "time": time,
        "each": every or word in _EACH,
        "unit": word in known.units,
        "number": number,
        "phrases": word in known.phrases,
        "side": word in known.opposite,
        "over": word in known.over,
        "was": _WAS.get(word, ""),
        "is_": _IS.get(word, ""),
    }
    plain = bool(parts) and parts[0][0] not in _SIGNS
    return Entry(
        parts=() if word in _WAS else parts,
        shy=word in known.shy,
        verb=parts[0] if plain and word not in _WAS else "",
        past=past[0] if past else "",
        doer=_parts_of(known.doers.get(word, ""), known),
        idle=not known.idle.isdisjoint((word, stem(known.past.get(word, word)), *parts[:1])),
        turns=any(traits[name] for name in ("side", "over", "was", "is_")) or word in ("by", "to", "from"),
        empty=not parts and not any(traits.values()) and word != "by",
        special=number or bool(time) or word in known.phrases or word in _EACH,
        **traits,  # type: ignore[arg-type]
    )


def _parts_of(word: str, known: Lexicon) -> Parts:
    """What a word counts as: itself, or what it is a form of, or what stands for all that mean the same."""
    base = word if word in known.becomes else known.past.get(word, word)
    if not base or base in known.becomes:
        return known.becomes.get(base, ())
    form = stem(_american(base))
    if form.endswith("li") and len(form) >= _ADVERB:
        form = stem(base[:-2])
    return known.heads.get(form, (form,))


def _american(word: str) -> str:
    """A word as it is spelt in America, where that is told by its end: "colour", "organise"."""
    if len(word) > 5:
        if word.startswith(_OLD_SPELLINGS):
            word = word.replace("ae", "e", 1)
        for british, american in _SPELLINGS:
            if found := british.fullmatch(word):
                return found.expand(american)
    return word


def phrases_from(word: str) -> tuple[Phrase, ...]:
    """The phrases that begin with a word, the longest first: what follows it, and what the whole counts as."""
    return lexicon().phrases.get(word, ())


@at_hand(1 << 12)
def weighs(parts: Parts) -> bool:
    """Whether any of what a word counts as is a word of weight or a person other than the user."""
    return any(part[0] not in (MARK, TIME) and part != USER for part in parts)


@at_hand(1 << 14)
def stem(word: str) -> str:
    """The stem of an English word; other words are left as they are."""
    return _stemmer.stemWord(word) if word.isascii() else word


def _time_of(word: str, known: Lexicon) -> tuple[str, bool]:
    """The time a word stands for, and whether it comes again and again: Mondays are every Monday."""
    if word[:1] == TIME:
        return word[1:], False
    time = known.times.get(word, "")
    if not time and len(word) > 5 and word.endswith("s"):
        time = known.times.get(word[:-1], "")
        is_weekday = time[:1] == "w" and time[1:].isdigit()
        return (time, True) if is_weekday else ("", False)
    return time, False


def _becomes(told: Mapping[str, Any]) -> dict[str, Parts]:
    """What each word counts as; where a word stands in two lists, the later one here decides."""
    found: dict[str, Parts] = {word: () for line in told["light"] for word in line.split()}
    for group in told["same"]["groups"]:
        first, *others = group.replace("|", " ").split()
        found |= dict.fromkeys((first, *others), (stem(first),))
    for group in told["people"]:
        first, *others = group.split()
        found |= {form: (PERSON + first,) for word in (first, *others) for form in (word, word + "s")}
    for who in ("user", "us", "he", "she"):
        found |= dict.fromkeys(told[who].split(), (PERSON + who,))
    found |= dict.fromkeys(told["negators"].split(), (NOT,))
    for sign, word in _pairs(told["numbers"]["signs"]).items():
        found[sign] = (word,)
    for what, words in told["denies"].items():
        found |= dict.fromkeys(words.split(), (NOT, *_parts(what, found)))
    for what, words in told["marks"].items():
        found |= dict.fromkeys(words.split(), _parts(what, found))
    return found


def _heads(groups: Sequence[str], becomes: Mapping[str, Parts]) -> dict[str, Parts]:
    """What stands for a word of a group, by its stem: all forms of a word mean the same."""
    found: dict[str, Parts] = {}
    for word in (word for group in groups for word in group.partition("|")[0].split()):
        found.setdefault(stem(word), becomes[word])
    return found


def _parts(text: str, becomes: Mapping[str, Parts]) -> Parts:
    parts: list[str] = []
    for word in text.split():
        parts += (word,) if word[0] in _SIGNS else becomes.get(word, (stem(_american(word)),))
    return tuple(parts)


def _phrases(told: Mapping[str, str], becomes: Mapping[str, Parts]) -> dict[str, tuple[Phrase, ...]]:
    found: dict[str, list[Phrase]] = {}
    for phrase, what in told.items():
        first, *rest = phrase.split()
        found.setdefault(first, []).append((rest, _parts(what, becomes)))
    return {first: tuple(sorted(those, key=lambda each: -len(each[0]))) for first, those in found.items()}


def _inflected(told: Mapping[str, str], irregular: Mapping[str, str]) -> dict[str, str]:
    """Each phrase in every form that its verb has."""
    forms: dict[str, list[str]] = {}
    for form, base in irregular.items():
        forms.setdefault(base, []).append(form)
    found: dict[str, str] = {}
    for phrase, what in told.items():
        verb, _, rest = phrase.partition(" ")
        short = verb.removesuffix("e")
        regular = (verb, verb + "s", verb + "es", short + "ing", short + "ed", verb + verb[-1] + "ing")
        found |= {f"{form} {rest}": what for form in (*regular, *forms.get(verb, ()), *_MORE_FORMS.get(verb, ()))}
    return found


def _times(told: Mapping[str, Any]) -> dict[str, str]:
    found = {word: word[:-1] if word.endswith("s") and len(word) > 3 else word for word in told["words"].split()}
    for name, letter in (("months", "m"), ("weekdays", "w")):
        for number, line in enumerate(told[name], 1):
            found |= dict.fromkeys(line.split(), f"{letter}{number}")
    return found


def _both_ways(pairs: Sequence[str]) -> dict[str, frozenset[str]]:
    found: dict[str, set[str]] = {}
    for one, other in (pair.split() for pair in pairs):
        found.setdefault(one, set()).add(other)
        found.setdefault(other, set()).add(one)
    return {word: frozenset(others) for word, others in found.items()}


def _pairs(text: str) -> dict[str, str]:
    return dict(pair.split("=") for pair in text.split())


def _values(text: str) -> dict[str, int]:
    return {word: int(value) for word, value in _pairs(text).items()}
