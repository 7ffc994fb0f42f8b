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

from recollect.model.extracted_fact import ExtractedFact
from recollect.model.memory import Category, MemoryType, Trust

_ACCENTS = re.compile("[\u0300-\u036f\u064b-\u065f]+")
_CLAUSE_END = re.compile(
    '[.!?;:,\n\u2026\u3002\uff01\uff1f\uff1b\uff1a\uff0c\u3001\u061f\u060c\u0964()\\[\\]{}"\u201c\u201d\u201e«»「」『』\u2013\u2014|*#>]+'
)
_WORD = re.compile("[^\\W_\u0900-\u097f]+(?:['\u2019-][^\\W_]+)*|[\u0900-\u0963\u0966-\u097f]+")
_SPACELESS = re.compile("[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af]")
# Before a command, and no part of it: manners, "and", who is meant, "not".
_LEADING_WORDS = frozenset(
    "please and also so then but ok okay just kindly remember note important bitte und por favor s'il vous te plait"
    " per favore prego alsjeblieft graag prosze et пожалуиста и lutfen ve assistant ai user instruction rule non ne"
    " no nao nie не لا niet nicht".split()
)
# An adverb need not stand right before its verb: "never ever tell", "никогда больше не пиши".
_MAX_VERB_DISTANCE = 3
_MAX_CHARS = 20_000


@dataclass(frozen=True, slots=True)
class _InstructionCues:
    anywhere: tuple[str, ...]
    opening: tuple[tuple[str, ...], ...]
    adverbs: tuple[str, ...]
    verbs: frozenset[str]
    request_phrases: tuple[str, ...]
    no_verb: frozenset[str]
    any_verb: bool


# What a model is told of what it wanted to keep, and the person who looks at it.
REVIEW_NOTICE = "It reads like an instruction, so it waits until a person has approved it."
REVIEW_REASON = "it tells what to do ('{phrase}'), and an agent says it, not the user"


def find_instruction(text: str) -> str:
    """The words that make the text a standing instruction, as they are looked for; empty when there are none."""
    folded = _fold(text[:_MAX_CHARS])
    for language in _languages():
        for phrase in language.anywhere:
            if phrase in folded and _stands_alone(phrase, folded):
                return phrase
    candidates = [each for each in _languages() if each.opening or any(adverb in folded for adverb in each.adverbs)]
    for clause in _CLAUSE_END.split(folded):
        for language in candidates:
            if instruction := _opening_phrase(clause, language) or _command_phrase(clause, language):
                return instruction
    return ""


def review_reason(fact: ExtractedFact, is_user_statement: bool) -> str:
    """Why a person must see it before it is used; empty when nobody must.

    Only the user's own words may instruct. What else was learned may inform, as long as its source has any trust.
    """
    if is_user_statement:
        return fact.review
    if fact.trust is Trust.NONE:
        return "its source is not trusted"
    if fact.category is Category.INSTRUCTION or fact.type is MemoryType.PROCEDURAL:
        return "it is an instruction that the user did not give"
    for text in (fact.content, fact.value or ""):
        if phrase := find_instruction(text):
            return f"it tells what to do ('{phrase}'), and the user did not say it"
    return fact.review


def _opening_phrase(clause: str, language: _InstructionCues) -> str:
    """The phrase that a clause begins with and that makes it an instruction; else empty."""
    for phrase in language.opening:
        if phrase[-1] in clause and phrase[0] in clause:
            size = len(phrase)
            if tuple(_WORD.findall(clause)[:size]) == phrase or tuple(_command_words(clause)[:size]) == phrase:
                return " ".join(phrase)
    return ""


def _command_phrase(clause: str, language: _InstructionCues) -> str:
    """The adverb and the verb of a clause that commands; else empty."""
    adverb = next((adverb for adverb in language.adverbs if adverb in clause and _stands_alone(adverb, clause)), "")
    if not adverb:
        return ""
    if request := next((part for part in language.request_phrases if part in clause), ""):
        return f"{adverb} {request}"
    if _SPACELESS.match(adverb):
        before, _, after = clause.partition(adverb)
        verb = next((verb for verb in language.verbs if after.startswith(verb)), "")
        return f"{adverb}{verb}" if verb and not before.strip() else ""
    words = _command_words(clause)
    if words and words[0] in language.verbs:
        return f"{words[0]} {adverb}"
    first = adverb.split()
    return _verb_after(words[len(first) :], adverb, language) if words[: len(first)] == first else ""


def _command_words(clause: str) -> list[str]:
    """The words from where a command could begin."""
    words = _WORD.findall(clause)
    at = next((at for at, word in enumerate(words) if word not in _LEADING_WORDS), len(words))
    return words[at:]


def _verb_after(words: Sequence[str], adverb: str, language: _InstructionCues) -> str:
    for word in words[:_MAX_VERB_DISTANCE]:
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


def _fold(text: str) -> str:
    """Small letters without accents, one kind of apostrophe, one space between words of a line."""
    apart = unicodedata.normalize("NFKD", text.replace("\u2019", "'")).casefold().replace("ı", "i")
    plain = unicodedata.normalize("NFC", _ACCENTS.sub("", apart))
    return re.sub(r"[ \t\u00a0]+", " ", plain)


@cache
def _languages() -> tuple[_InstructionCues, ...]:
    table = tomllib.loads((files(__package__) / "instructions.toml").read_text(encoding="utf-8"))
    return tuple(_build_cues(each) for each in table.values())


def _build_cues(table: dict[str, Any]) -> _InstructionCues:
    return _InstructionCues(
        anywhere=tuple(map(_fold, table["anywhere"])),
        opening=tuple(tuple(_fold(phrase).split()) for phrase in table.get("opening", ())),
        adverbs=tuple(map(_fold, table["adverbs"])),
        verbs=frozenset(_fold(table.get("verbs", "")).split()),
        request_phrases=tuple(map(_fold, table.get("asking", ()))),
        no_verb=frozenset(_fold(table.get("no_verb", "")).split()),
        any_verb=table.get("any_verb", False),
    )
