"""Find standing instructions: texts that tell their reader what to do from now on."""

from __future__ import annotations

import tomllib
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from recollect.lazy_pattern import lazy_pattern

_ACCENTS = lazy_pattern("[\u0300-\u036f\u064b-\u065f]+")
_CLAUSE_END = lazy_pattern(
    '[.!?;:,\n\u2026\u3002\uff01\uff1f\uff1b\uff1a\uff0c\u3001\u061f\u060c\u0964()\\[\\]{}"\u201c\u201d\u201e«»「」『』\u2013\u2014|*#>]+'
)
_WORD = lazy_pattern("[^\\W_\u0900-\u097f]+(?:['\u2019-][^\\W_]+)*|[\u0900-\u0963\u0966-\u097f]+")
_SPACELESS = lazy_pattern("[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af]")
_TOKEN = lazy_pattern(r"[^\W_]+")
_SPACES = lazy_pattern(r"[ \t\u00a0]+")
# Words before a command that are no part of it.
_LEADING_WORDS = frozenset(
    "please and also so then but ok okay just kindly remember note important bitte und por favor s'il vous te plait"
    " per favore prego alsjeblieft graag prosze et пожалуиста и lutfen ve assistant ai user instruction rule non ne"
    " no nao nie не لا niet nicht".split()
)
# There may be words between adverb and verb: "never ever tell", "никогда больше не пиши".
_MAX_VERB_DISTANCE = 3
# The part of a text that is searched.
MAX_CHARS = 20_000


class _InstructionCues:
    """The compiled phrases of one language in instructions.toml."""

    def __init__(self, table: Mapping[str, Any]) -> None:
        self.anywhere = [_fold(phrase) for phrase in table["anywhere"]]
        self.opening = [tuple(_fold(phrase).split()) for phrase in table.get("opening", ())]
        self.adverbs = [_fold(phrase) for phrase in table["adverbs"]]
        self.verbs = frozenset(_fold(table.get("verbs", "")).split())
        self.request_phrases = [_fold(phrase) for phrase in table.get("asking", ())]
        self.no_verb = frozenset(_fold(table.get("no_verb", "")).split())
        self.any_verb: bool = table.get("any_verb", False)


def find_instruction(text: str) -> str:
    """Return the phrase that makes the text a standing instruction; empty if there is none."""
    return _FoldedText(text).find_instruction()


def may_instruct(text: str) -> bool:
    """Return whether the text contains an instruction, or a word such as "always" that makes one of a command."""
    folded = _FoldedText(text)
    return bool(folded.adverb_languages or folded.find_instruction())


class _FoldedText:
    """A text as it is compared with phrases, and its tokens: most texts share none with any phrase."""

    def __init__(self, text: str) -> None:
        self.text = _fold(text[:MAX_CHARS])
        self.tokens = dict.fromkeys(_TOKEN.findall(self.text))
        by_adverb = _adverbs()
        self.adverb_languages = {
            language for adverb in self._phrases_in(by_adverb) for language in by_adverb.languages[adverb]
        }

    def find_instruction(self) -> str:
        """Return the phrase that makes the text a standing instruction; empty if there is none."""
        for phrase in self._phrases_in(_phrases()):
            return phrase
        if not self.adverb_languages and _opening_tokens().isdisjoint(self.tokens):
            return ""
        candidates = [each for each in _languages() if each.opening or each in self.adverb_languages]
        for clause in _CLAUSE_END.split(self.text):
            for language in candidates:
                if instruction := _opening_phrase(clause, language) or _command_phrase(clause, language):
                    return instruction
        return ""

    def _phrases_in(self, index: _PhraseIndex) -> Iterator[str]:
        """Yield the phrases that stand alone in the text."""
        for token in filter(index.by_token.__contains__, self.tokens):
            for phrase in index.by_token[token]:
                if phrase in self.text and _stands_alone(phrase, self.text):
                    yield phrase
        if not self.text.isascii():
            yield from filter(self.text.__contains__, index.spaceless)


def _opening_phrase(clause: str, language: _InstructionCues) -> str:
    """Return the phrase at the beginning of a clause that makes it an instruction; else empty."""
    for phrase in language.opening:
        if phrase[-1] in clause and phrase[0] in clause:
            size = len(phrase)
            if tuple(_WORD.findall(clause)[:size]) == phrase or tuple(_command_words(clause)[:size]) == phrase:
                return " ".join(phrase)
    return ""


def _command_phrase(clause: str, language: _InstructionCues) -> str:
    """Return the adverb and the verb of a clause that commands; else empty."""
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
    """Return the words from the first that could begin a command."""
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
    """Return whether an English word has the ending of a past or progressive form, which no command has."""
    return (word.endswith("ed") and not word.endswith("eed")) or (len(word) > 5 and word.endswith("ing"))


def _stands_alone(phrase: str, text: str) -> bool:
    """Return whether the phrase is in the text as whole words; anywhere in scripts without spaces."""
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
    """Return the text in lower case without accents, with one kind of apostrophe and single spaces."""
    if text.isascii():
        plain = text.lower()
    else:
        apart = unicodedata.normalize("NFKD", text.replace("\u2019", "'")).casefold().replace("ı", "i")
        plain = unicodedata.normalize("NFC", _ACCENTS.sub("", apart))
    return _SPACES.sub(" ", plain) if any(map(plain.__contains__, ("  ", "\t", "\u00a0"))) else plain


class _PhraseIndex:
    """Phrases by their longest token, those of scripts without spaces between words, and their languages."""

    def __init__(self, phrases: Iterable[tuple[str, _InstructionCues]]) -> None:
        self.by_token: dict[str, list[str]] = {}
        self.spaceless: list[str] = []
        self.languages: dict[str, list[_InstructionCues]] = {}
        for phrase, language in phrases:
            self.languages.setdefault(phrase, []).append(language)
            if _SPACELESS.search(phrase):
                self.spaceless.append(phrase)
            else:
                self.by_token.setdefault(max(_TOKEN.findall(phrase), key=len), []).append(phrase)


@cache
def _phrases() -> _PhraseIndex:
    return _PhraseIndex((phrase, language) for language in _languages() for phrase in language.anywhere)


@cache
def _adverbs() -> _PhraseIndex:
    return _PhraseIndex((adverb, language) for language in _languages() for adverb in language.adverbs)


@cache
def _opening_tokens() -> frozenset[str]:
    """Return the first tokens of the phrases that instruct at the beginning of a clause."""
    return frozenset(_TOKEN.findall(phrase[0])[0] for language in _languages() for phrase in language.opening)


@cache
def _languages() -> tuple[_InstructionCues, ...]:
    table = tomllib.loads(Path(__file__).with_name("instructions.toml").read_text(encoding="utf-8"))
    return tuple(map(_InstructionCues, table.values()))
