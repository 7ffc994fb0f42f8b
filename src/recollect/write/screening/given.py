"""What a caller gives to be kept, without its secrets: words, value and key, tags, source, metadata and detail.

A name tells what its value is: `{"password": "..."}` and a fact with the key "wifi password" are read as they would
be said. Ids of other memories, times and shares are left alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from recollect.errors import InvalidInput
from recollect.model.at_hand import at_hand
from recollect.model.change import By
from recollect.model.invisible import normalise_invisible
from recollect.model.memory import Category, MemoryRecord
from recollect.write.screening.redact import redact

# What of a memory holds words of its giver.
_WORDS = ("content", "key", "value", "source", "tags", "metadata", "detail")
# A word too short for any secret that says of itself what it is.
_PLAIN_WORD = re.compile("(?!cv)[a-z0-9_-]{0,8}|[a-z_-]{0,15}", re.IGNORECASE)
# The key of a cache, a row or a map is no secret; one that opens something is.
_OPENS = re.compile("api|access|secret|private|auth|sign|encrypt|licen[cs]e", re.IGNORECASE)
# What is a secret only by its name: a password or token, a PIN, a social security number, a short card number.
_TOLD_BY_NAME = ("x7Kq2pL9vW3nR8tZ", "4821", "457555462", "630427373398")
_LEAST_NUMBER = 10**8


@dataclass(frozen=True, slots=True)
class Redacting:
    """What secrets are kept out of; each verb gives what it was given without them, and the kinds it found."""

    memories: bool = True
    turns: bool = True

    def record(self, record: MemoryRecord) -> tuple[MemoryRecord, tuple[str, ...]]:
        """A memory or a turn."""
        if not (self.turns if record.category is Category.TURN else self.memories):
            return record, ()
        clean, found = self._fields({name: getattr(record, name) for name in _WORDS}, None)
        return (replace(record, **clean), found) if found else (record, ())

    def fields(self, fields: Mapping[str, Any], *, key: str | None = None) -> tuple[dict[str, Any], tuple[str, ...]]:
        """Checked fields of a memory; `key` is what a value is of, if they do not say."""
        return self._fields(fields, key) if self.memories else (dict(fields), ())

    def said(self, text: str) -> tuple[str, tuple[str, ...]]:
        """The words of a turn."""
        return _redacted(text) if self.turns else (text, ())

    def by(self, by: By) -> By:
        """Who changes something; it is the reasons that are looked at."""
        return replace(by, why=_redacted(by.why)[0]) if by.why and self.memories else by

    def _fields(self, fields: Mapping[str, Any], key: str | None) -> tuple[dict[str, Any], tuple[str, ...]]:
        given = {name: fields[name] for name in _WORDS if fields.get(name)}
        names = {"value": fields.get("key") or key or ""}
        found: list[str] = []
        try:
            clean = {name: _clean(held, found, name=names.get(name, "")) for name, held in given.items()}
        except RecursionError:
            raise InvalidInput("metadata and detail are too deep to be looked into; make them flatter") from None
        return ({**fields, **clean}, tuple(dict.fromkeys(found))) if found else (dict(fields), ())


def _redacted(text: str) -> tuple[str, tuple[str, ...]]:
    """The text without secrets, also those that hidden characters cut in two; one that has none stays as it is."""
    redacted = redact(normalise_invisible(text))
    return (redacted.text, redacted.found) if redacted.found else (text, ())


def _clean(value: Any, found: list[str], *, name: str = "") -> Any:
    match value:
        case str():
            return _clean_text(value, found, name)
        case Mapping():
            return {_clean_text(str(each), found, ""): _clean(held, found, name=each) for each, held in value.items()}
        case list() | tuple():
            return type(value)([_clean(each, found, name=name) for each in value])
        case bool():
            return value
        case int() if value >= _LEAST_NUMBER or (name and _tells(name)):
            text = _clean_text(str(value), found, name)
            return value if text == str(value) else text
    return value


def _clean_text(text: str, found: list[str], name: str) -> str:
    told = bool(name) and _tells(name)
    if not told and _PLAIN_WORD.fullmatch(text):
        return text
    said = f"{name}: {text}" if told else text
    start = len(said) - len(text)
    redacted, kinds = _redacted(said)
    if kinds and not redacted.startswith(said[:start]):
        # The name itself is not to be told, and says nothing of what it names.
        start, (redacted, kinds) = 0, _redacted(text)
    found += kinds
    return redacted[start:] if kinds else text


@at_hand(1024)
def _tells(name: str) -> bool:
    """Whether a value is a secret by what it is called."""
    is_any_key = name[-3:].lower() == "key" and not _OPENS.search(name)
    return not is_any_key and any(redact(f"{name}: {each}").found for each in _TOLD_BY_NAME)
