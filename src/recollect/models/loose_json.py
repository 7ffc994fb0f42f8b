"""Read JSON as language models write it: fenced, within prose, misspelled, cut off; in time linear in its length.

Nothing is made up. What is unfinished is left out: half a number is another number.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any

from recollect.frozen_dataclass import frozen_dataclass
from recollect.lazy_pattern import lazy_pattern

# Of longer texts only so much is read.
MAX_CHARS = 1 << 20
# No answer we ask for is nested deeper; a bomb of brackets is.
_MAX_DEPTH = 32
_MAX_VALUES = 16
_MAX_NUMBER_CHARS = 40
# A reading that starts again at every brace could take quadratic time; this many steps a character is plenty.
_STEPS_PER_CHAR = 2

# Halves of surrogate pairs and NUL, as JSON spells them: no store can keep them.
_UNSTORABLE = lazy_pattern(
    r"\\u(?:0000"
    r"|[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F][0-9a-fA-F]{2})"
    r"|(?<!\\u[dD][89abAB][0-9a-fA-F]{2}\\u)[dD][c-fC-F][0-9a-fA-F]{2})"
)
_OPENING = lazy_pattern(r"[{\[]")
_SKIPPED = lazy_pattern(r"(?:\s+|//[^\n]*+)*+")
_PLAIN = {quote: re.compile(rf"[^{quote}\\]*+(?:\\.[^{quote}\\]*+)*+", re.DOTALL) for quote in "\"'”"}
_CLOSING_QUOTE = {'"': '"', "'": "'", "“": "”"}
_AFTER_STRING = lazy_pattern(r"\s*(?:[,:}\]]|$)")
_BARE = lazy_pattern(r"""[^\s,:{}\[\]"']+""")
_NUMBER = lazy_pattern(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?")
_WORDS = {"true": True, "false": False, "null": None, "none": None, "nan": None, "infinity": None, "-infinity": None}
# An escape as JSON has it, another one, a quotation mark without any.
_ESCAPE = lazy_pattern(r"""(\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))|\\(.)|(")""", re.DOTALL)


@frozen_dataclass
class ParsedJson:
    """A value, and whether part of it was lost because it was cut off or malformed."""

    value: Any
    is_incomplete: bool = False


class _NotJson(Exception):
    """There is no JSON here, perhaps a brace in a sentence."""


class _GiveUp(Exception):
    """Parsing was stopped: too deep or too many steps."""


def parse_json_values(text: str) -> Iterator[ParsedJson]:
    """Return the JSON values of a text in order: the text itself, or each object and list in it.

    A string that spells an object or a list stands for that.
    """
    is_cut = len(text) > MAX_CHARS
    text = _UNSTORABLE.sub(r"\\ufffd", text[:MAX_CHARS].strip().removeprefix("\ufeff"))
    if not is_cut:
        try:
            value = _strict(text)
        except (ValueError, RecursionError):
            pass
        else:
            spelled = isinstance(value, str) and value.lstrip()[:1] in ("{", "[")
            yield from list(parse_json_values(value)) or [ParsedJson(value)] if spelled else [ParsedJson(value)]
            return
    reader = _Reader(text)
    at = 0
    for _ in range(_MAX_VALUES):
        try:
            next_value = reader.next_from(at)
        except _GiveUp:
            return
        if next_value is None:
            return
        value, at = next_value
        yield ParsedJson(value, is_cut or reader.is_incomplete)


def _strict(text: str) -> Any:
    return json.loads(text, parse_float=_number, parse_constant=lambda _: None, object_pairs_hook=_merge_pairs)


def _merge_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Build an object; for a repeated key lists are joined, otherwise the last non-empty value is used."""
    joined: dict[str, Any] = {}
    for key, value in pairs:
        _put(joined, key, value)
    return joined


def _put(into: dict[str, Any], key: str, value: Any) -> None:
    existing = into.get(key)
    if isinstance(existing, list) and isinstance(value, list):
        into[key] = existing + value
    elif key not in into or value not in (None, "", [], {}):
        into[key] = value


def _number(text: str) -> int | float | None:
    """Return the number, or None for NaN and infinity."""
    if len(text) > _MAX_NUMBER_CHARS:
        return None
    if text.lstrip("+-").isdecimal():
        return int(text)
    number = float(text)
    return number if math.isfinite(number) else None


class _Reader:
    """Parses a text once; `lost` refers to the last value."""

    def __init__(self, text: str) -> None:
        self.is_incomplete = False
        self._text = text
        self._at = 0
        self._steps_left = _STEPS_PER_CHAR * len(text) + 1000

    def next_from(self, at: int) -> tuple[Any, int] | None:
        """Return the next object or list and its end."""
        while opening := _OPENING.search(self._text, at):
            self.is_incomplete = False
            self._at = at = opening.start()
            try:
                return self._value(0), self._at
            except _NotJson:
                self._step(self._at - at)
                at += 1
        return None

    def _step(self, count: int = 1) -> None:
        self._steps_left -= count
        if self._steps_left < 0:
            raise _GiveUp

    def _peek(self) -> str:
        """Return the next significant character; empty at the end."""
        self._step()
        skipped = _SKIPPED.match(self._text, self._at)
        self._at = skipped.end() if skipped else self._at
        return self._text[self._at : self._at + 1]

    def _value(self, depth: int) -> Any:
        """Parse the value here; raise `_NotJson` if there is none, or it is cut off too early."""
        if depth > _MAX_DEPTH:
            raise _GiveUp
        start = self._peek()
        if start == "{":
            return self._object(depth)
        if start == "[":
            return self._list(depth)
        if start in _CLOSING_QUOTE:
            return self._string(start)
        return self._bare()

    def _object(self, depth: int) -> dict[str, Any]:
        self._at += 1
        read: dict[str, Any] = {}
        while (char := self._peek()) not in ("}", "]", ""):
            if char in ",;":
                self._at += 1
                continue
            try:
                key = self._string(char) if char in _CLOSING_QUOTE else str(self._bare())
                if self._peek() != ":":
                    raise _NotJson
                self._at += 1
                _put(read, key, self._value(depth + 1))
            except _NotJson:
                if not read:
                    raise
                self._skip()
        self._close(char, "}")
        return read

    def _list(self, depth: int) -> list[Any]:
        self._at += 1
        read: list[Any] = []
        while (char := self._peek()) not in ("]", "}", ""):
            if char == ",":
                self._at += 1
                continue
            try:
                read.append(self._value(depth + 1))
            except _NotJson:
                self._skip()
        self._close(char, "]")
        return read

    def _close(self, char: str, expected: str) -> None:
        if char == expected:
            self._at += 1
        else:
            # Cut off, or closed by the bracket of what it is in.
            self.is_incomplete = True

    def _skip(self) -> None:
        """Skip malformed text, at least one character."""
        self.is_incomplete = True
        if self._peek() not in ("}", "]", ""):
            self._at += 1

    def _string(self, quote: str) -> str:
        closing = _CLOSING_QUOTE[quote]
        start = self._at + 1
        end = start
        while True:
            plain = _PLAIN[closing].match(self._text, end)
            end = plain.end() if plain else end
            self._step()
            if end >= len(self._text):
                self._step(end - start)
                self._at = len(self._text)
                raise _NotJson
            if _AFTER_STRING.match(self._text, end + 1):
                break
            # A quotation mark within the words, which the model forgot to escape.
            end += 1
        self._at = end + 1
        return _unescape(self._text[start:end])

    def _bare(self) -> Any:
        """Parse a number or an unquoted word; a number at the end of the text may be incomplete."""
        bare = _BARE.match(self._text, self._at)
        if bare is None or bare.end() == len(self._text):
            self._at = bare.end() if bare else self._at
            raise _NotJson
        self._at = bare.end()
        word = bare.group()
        if word.casefold() in _WORDS:
            return _WORDS[word.casefold()]
        return _number(word) if _NUMBER.fullmatch(word) else word


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    spelled = _ESCAPE.sub(lambda match: match[1] or match[2] or '\\"', text)
    whole: str = json.loads(f'"{spelled}"', strict=False)
    return whole
