"""Standing instructions: words that tell whoever reads them what to do from now on.

A memory that commands is worth a lot to an attacker. From the user it is what they want; from anyone else (a page
that was quoted, an assistant that was led astray) it waits until a person has seen it.
"""

from __future__ import annotations

import re
import tomllib
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from recollect.model.extracted import ExtractedFact
from recollect.model.memory import Category, MemoryType, Trust

_ACCENTS = re.compile("[\u0300-\u036f\u064b-\u065f]+")
_CLAUSE_END = re.compile(
    '[.!?;:,\n\u2026\u3002\uff01\uff1f\uff1b\uff1a\uff0c\u3001\u061f\u060c\u0964()\\[\\]{}"\u201c\u201d\u201e«»「」『』\u2013\u2014|*#>]+'
)
_WORD = re.compile("[^\\W_\u0900-\u097f]+(?:['\u2019-][^\\W_]+)*|[\u0900-\u0963\u0966-\u097f]+")
_SPACELESS = re.compile("[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af]")
# Before a command, and no part of it: manners, "and", who is meant, "not".
_BEFORE = frozenset(
    "please and also so then but ok okay just kindly remember note important bitte und por favor s'il vous te plait"
    " per favore prego alsjeblieft graag prosze et пожалуиста и lutfen ve assistant ai user instruction rule non ne"
    " no nao nie не لا niet nicht".split()
)
# An adverb need not stand right before its verb: "never ever tell", "никогда больше не пиши".
_NEAR = 3
_MOST_CHARS = 20_000


@dataclass(frozen=True, slots=True)
class _Language:
    anywhere: tuple[str, ...]
    opening: tuple[tuple[str, ...], ...]
    adverbs: tuple[str, ...]
    verbs: frozenset[str]
    asking: tuple[str, ...]
    no_verb: frozenset[str]
    any_verb: bool


# What a model is told of what it wanted to keep, and the person who looks at it.
WAITS = "It reads like an instruction, so it waits until a person has approved it."
WHY_IT_WAITS = "it tells what to do ('{phrase}'), and an agent says it, not the user"


def imperative_in(text: str) -> str:
    """The words that make the text a standing instruction, as they are looked for; empty when there are none."""
    folded = _folded(text[:_MOST_CHARS])
    for language in _languages():
        for phrase in language.anywhere:
            if phrase in folded and _stands_alone(phrase, folded):
                return phrase
    speaking = [each for each in _languages() if each.opening or any(adverb in folded for adverb in each.adverbs)]
    for clause in _CLAUSE_END.split(folded):
        for language in speaking:
            if found := _opening(clause, language) or _command(clause, language):
                return found
    return ""


def review_reason(learned: ExtractedFact, said_by_user: bool) -> str:
    """Why a person must see it before it is used; empty when nobody must.

    Only the user's own words may instruct. What else was learned may inform, as long as its source has any trust.
    """
    if said_by_user:
        return learned.review
    if learned.trust is Trust.NONE:
        return "its source is not trusted"
    if learned.category is Category.INSTRUCTION or learned.type is MemoryType.PROCEDURAL:
        return "it is an instruction that the user did not give"
    for text in (learned.content, learned.value or ""):
        if phrase := imperative_in(text):
            return f"it tells what to do ('{phrase}'), and the user did not say it"
    return learned.review


def _opening(clause: str, language: _Language) -> str:
    """The phrase that a clause begins with and that makes it an instruction; else empty."""
    for phrase in language.opening:
        if phrase[-1] in clause and phrase[0] in clause:
            size = len(phrase)
            if tuple(_WORD.findall(clause)[:size]) == phrase or tuple(_words(clause)[:size]) == phrase:
                return " ".join(phrase)
    return ""


def _command(clause: str, language: _Language) -> str:
    """The adverb and the verb of a clause that commands; else empty."""
    adverb = next((adverb for adverb in language.adverbs if adverb in clause and _stands_alone(adverb, clause)), "")
    if not adverb:
        return ""
    if asking := next((part for part in language.asking if part in clause), ""):
        return f"{adverb} {asking}"
    if _SPACELESS.match(adverb):
        before, _, after = clause.partition(adverb)
        verb = next((verb for verb in language.verbs if after.startswith(verb)), "")
        return f"{adverb}{verb}" if verb and not before.strip() else ""
    words = _words(clause)
    if words and words[0] in language.verbs:
        return f"{words[0]} {adverb}"
    first = adverb.split()
    return _verb_after(words[len(first) :], adverb, language) if words[: len(first)] == first else ""


def _words(clause: str) -> list[str]:
    """The words from where a command could begin."""
    words = _WORD.findall(clause)
    at = next((at for at, word in enumerate(words) if word not in _BEFORE), len(words))
    return words[at:]


def _verb_after(words: Sequence[str], adverb: str, language: _Language) -> str:
    for word in words[:_NEAR]:
        if word in language.verbs:
            return f"{adverb} {word}"
        if language.any_verb and word not in ("ever", "please"):
            return "" if word in language.no_verb or _is_past(word) else f"{adverb} {word}"
    return ""


def _is_past(word: str) -> bool:
    """Whether an English word has the ending of something that was, or goes on: no command has it."""
    return (word.endswith("ed") and not word.endswith("eed")) or (len(word) > 5 and word.endswith("ing"))


def _stands_alone(phrase: str, text: str) -> bool:
    """Whether the phrase is in the text as words of their own; where words are not put apart, anywhere."""
    if _SPACELESS.search(phrase):
        return phrase in text
    at = text.find(phrase)
    while at >= 0:
        end = at + len(phrase)
        if not (at and text[at - 1].isalnum()) and not text[end : end + 1].isalnum():
            return True
        at = text.find(phrase, at + 1)
    return False


def _folded(text: str) -> str:
    """Small letters without accents, one kind of apostrophe, one space between words of a line."""
    apart = unicodedata.normalize("NFKD", text.replace("\u2019", "'")).casefold().replace("ı", "i")
    plain = unicodedata.normalize("NFC", _ACCENTS.sub("", apart))
    return re.sub(r"[ \t\u00a0]+", " ", plain)


@cache
def _languages() -> tuple[_Language, ...]:
    table = tomllib.loads((files(__package__) / "imperatives.toml").read_text(encoding="utf-8"))
    return tuple(_language(each) for each in table.values())


def _language(table: dict[str, Any]) -> _Language:
    return _Language(
        anywhere=tuple(map(_folded, table["anywhere"])),
        opening=tuple(tuple(_folded(phrase).split()) for phrase in table.get("opening", ())),
        adverbs=tuple(map(_folded, table["adverbs"])),
        verbs=frozenset(_folded(table.get("verbs", "")).split()),
        asking=tuple(map(_folded, table.get("asking", ()))),
        no_verb=frozenset(_folded(table.get("no_verb", "")).split()),
        any_verb=table.get("any_verb", False),
    )
