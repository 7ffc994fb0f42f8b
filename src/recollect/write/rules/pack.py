"""A language pack: how one language says what the rules look for. The packs are the TOML files beside it."""

from __future__ import annotations

import re
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from recollect.model.at_hand import at_hand
from recollect.model.memory import Category, MemoryType

_LANGUAGES = ("en", "de", "es", "fr")
# The pack that has every part, and the language that is taken where nothing tells.
_FULLEST = "en"
_TELLING_CHARS = 600
# What a pack leaves out is never found.
_NEVER = re.compile(r"(?!)")
# The patterns by which something is taken back.
TAKES_BACK = ("no_longer", "forget", "forget_that", "forget_my")
_WORD = re.compile(r"[^\W\d_]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One way to say one kind of thing.

    One of `patterns` is matched at the start of a clause, `shape` is what its value must look like, and `key` and
    `tell` are filled with what was found. After a rule that is `further` the next may state something too. `when` is
    how it deals with time: "event" (it may have one), "ahead" (one still to come), "maybe_ahead" (that, unless a
    word says that it is over), "must" and "must_ahead" (nothing without one), "said" (as told, not as written down).
    What is `topical` must say what it belongs to. What is `single` is one value at a time: where the words say that
    it changed, what was said before is over. What is `only_known` counts if there is a value under its key to be
    changed; it ends what is known under the keys that are `over`. Of a list, what is said of
    `each` is a statement of its own. What is `asked` counts only if the user asks to keep it.
    """

    name: str
    patterns: tuple[re.Pattern[str], ...]
    category: Category
    type: MemoryType | None
    shape: str
    key: str
    tell: str
    importance: float
    confidence: float
    when: str
    further: bool
    refuse: re.Pattern[str] | None
    topical: bool
    single: bool
    only_known: bool
    each: bool
    asked: bool
    over: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """A question of the assistant, and the sentence that a short answer to it stands for."""

    pattern: re.Pattern[str]
    means: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Pack:
    """All that one language brings; see en.toml for what each part is."""

    language: str
    rules: Mapping[str, tuple[Rule, ...]]
    gates: Mapping[str, re.Pattern[str]]
    asks: tuple[Ask, ...]
    words: Mapping[str, frozenset[str]]
    cues: Mapping[str, frozenset[str]]
    patterns: Mapping[str, re.Pattern[str]]
    takes_back: re.Pattern[str]
    third: Mapping[str, str]
    short: Mapping[str, str]
    contraction: re.Pattern[str] | None
    texts: Mapping[str, str]


def pack_for(text: str, *, usual: str = _FULLEST) -> Pack:
    """The pack of the language that most of the text's small words belong to; in a draw, the usual one."""
    found = _small_words_in(text[:_TELLING_CHARS])
    return _pack(max(_LANGUAGES, key=lambda name: (found[name], name == usual)))


# A conversation of one turn is asked about twice.
@at_hand(16)
def _small_words_in(text: str) -> Mapping[str, int]:
    said = set(_WORD.findall(text.lower()))
    return {name: len(said & _small_words(name)) for name in _LANGUAGES}


@cache
def _table(language: str) -> Mapping[str, Any]:
    return tomllib.loads((files(__package__) / f"{language}.toml").read_text(encoding="utf-8"))


@cache
def _small_words(language: str) -> frozenset[str]:
    return frozenset(_table(language)["words"]["small"].split())


@cache
def _pack(language: str) -> Pack:
    table = _table(language)
    shapes: dict[str, str] = {}
    for name, words in table["lists"].items():
        shapes[name] = (
            "(?:" + "|".join(re.escape(word).replace(r"\ ", " ") for word in _longest_first(_words(words))) + ")"
        )
    for name, shape in table["shapes"].items():
        shapes[name] = _filled(shape, shapes)
    rules: dict[str, list[Rule]] = defaultdict(list)
    for row in table["rules"]:
        rule = _rule(row, shapes)
        for word in row["on"].split():
            rules[word].append(rule)
    patterns = {name: _compiled(pattern, shapes) for name, pattern in table["patterns"].items()}
    short = table.get("contractions", {})
    return Pack(
        language=language,
        rules={word: tuple(some) for word, some in rules.items()},
        gates={word: _gate([each for rule in some for each in rule.patterns]) for word, some in rules.items()},
        asks=tuple(Ask(pattern=_compiled(row["say"], shapes), means=row["means"]) for row in table.get("asks", ())),
        words={name: frozenset(_words(words)) for name, words in table["words"].items()},
        cues={name: frozenset(table["cues"].get(name, "").split()) for name in _table(_FULLEST)["cues"]},
        patterns=dict.fromkeys(_table(_FULLEST)["patterns"], _NEVER) | patterns,
        takes_back=_gate([patterns[name] for name in TAKES_BACK if name in patterns]),
        third=table.get("third", {}),
        short=short,
        contraction=re.compile(rf"\b(?:{'|'.join(_longest_first(short))})\b", re.IGNORECASE) if short else None,
        texts=table["texts"],
    )


def _words(text: str) -> list[str]:
    """The words of a list; an underscore joins those that stand together."""
    return [word.replace("_", " ") for word in text.split()]


def _longest_first(words: Iterable[str]) -> list[str]:
    return sorted(words, key=len, reverse=True)


def _filled(pattern: str, shapes: Mapping[str, str]) -> str:
    """The pattern with each <name> replaced by what the pack calls so."""
    return re.sub(r"(?<!\?P)<([a-z_]+)>", lambda name: shapes[name[1]], pattern)


def _compiled(pattern: str, shapes: Mapping[str, str]) -> re.Pattern[str]:
    return re.compile(_filled(pattern, shapes), re.IGNORECASE)


def _gate(patterns: Sequence[re.Pattern[str]]) -> re.Pattern[str]:
    """One pattern for several: most clauses fit none of them, and this tells it at once."""
    every = "|".join(pattern.pattern for pattern in patterns) or _NEVER.pattern
    return re.compile(re.sub(r"\?P<\w+>", "?:", every), re.IGNORECASE)


def _rule(row: Mapping[str, Any], shapes: Mapping[str, str]) -> Rule:
    refuse = row.get("refuse")
    return Rule(
        name=row["name"],
        patterns=tuple(_compiled(say, shapes) for say in row["say"]),
        category=Category(row["category"]),
        type=MemoryType(row["type"]) if "type" in row else None,
        shape=row.get("shape", "words"),
        key=row.get("key", ""),
        tell=row.get("tell", ""),
        importance=row.get("importance", 0.6),
        confidence=row.get("confidence", 0.9),
        when=row.get("when", ""),
        further=row.get("further", False),
        refuse=_compiled(refuse, shapes) if refuse else None,
        topical=row.get("topical", False),
        single=row.get("single", False),
        only_known=row.get("only_known", False),
        each=row.get("each", False),
        asked=row.get("asked", False),
        over=tuple(row.get("over", "").split()),
    )
