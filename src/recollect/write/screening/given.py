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
from recollect.model.at_hand import erasable_cache
from recollect.model.change import Author
from recollect.model.invisible import normalise_invisible
from recollect.model.memory import Category, MemoryRecord
from recollect.write.screening.redact import redact

# What of a memory holds words of its giver.
_REDACTED_FIELDS = ("content", "key", "value", "source", "tags", "metadata", "detail")
# A word too short for any secret that says of itself what it is.
_PLAIN_WORD = re.compile("(?!cv)[a-z0-9_-]{0,8}|[a-z_-]{0,15}", re.IGNORECASE)
# The key of a cache, a row or a map is no secret; one that opens something is.
_ACCESS_KEY_NAME = re.compile("api|access|secret|private|auth|sign|encrypt|licen[cs]e", re.IGNORECASE)
# What is a secret only by its name: a password or token, a PIN, a social security number, a short card number.
_SAMPLE_SECRETS = ("x7Kq2pL9vW3nR8tZ", "4821", "457555462", "630427373398")
_MIN_NUMBER = 10**8


@dataclass(frozen=True, slots=True)
class Redactor:
    """What secrets are kept out of; each verb gives what it was given without them, and the kinds it found."""

    memories: bool = True
    turns: bool = True

    def redact_record(self, record: MemoryRecord) -> tuple[MemoryRecord, tuple[str, ...]]:
        """A memory or a turn."""
        if not (self.turns if record.category is Category.TURN else self.memories):
            return record, ()
        clean, kinds = self._redact_values({name: getattr(record, name) for name in _REDACTED_FIELDS}, None)
        return (replace(record, **clean), kinds) if kinds else (record, ())

    def redact_fields(
        self, fields: Mapping[str, Any], *, key: str | None = None
    ) -> tuple[dict[str, Any], tuple[str, ...]]:
        """Checked fields of a memory; `key` is what a value is of, if they do not say."""
        return self._redact_values(fields, key) if self.memories else (dict(fields), ())

    def redact_turn_text(self, text: str) -> tuple[str, tuple[str, ...]]:
        """The words of a turn."""
        return _redact_normalized(text) if self.turns else (text, ())

    def redact_author(self, by: Author) -> Author:
        """Who changes something; it is the reasons that are looked at."""
        return replace(by, why=_redact_normalized(by.why)[0]) if by.why and self.memories else by

    def _redact_values(self, fields: Mapping[str, Any], key: str | None) -> tuple[dict[str, Any], tuple[str, ...]]:
        values = {name: fields[name] for name in _REDACTED_FIELDS if fields.get(name)}
        names = {"value": fields.get("key") or key or ""}
        kinds: list[str] = []
        try:
            clean = {name: _redact_value(value, kinds, name=names.get(name, "")) for name, value in values.items()}
        except RecursionError:
            raise InvalidInput("metadata and detail are too deep to be looked into; make them flatter") from None
        return ({**fields, **clean}, tuple(dict.fromkeys(kinds))) if kinds else (dict(fields), ())


def _redact_normalized(text: str) -> tuple[str, tuple[str, ...]]:
    """The text without secrets, also those that hidden characters cut in two; one that has none stays as it is."""
    redacted = redact(normalise_invisible(text))
    return (redacted.text, redacted.kinds) if redacted.kinds else (text, ())


def _redact_value(value: Any, kinds: list[str], *, name: str = "") -> Any:
    match value:
        case str():
            return _redact_named_text(value, kinds, name)
        case Mapping():
            return {
                _redact_named_text(str(each), kinds, ""): _redact_value(item, kinds, name=each)
                for each, item in value.items()
            }
        case list() | tuple():
            return type(value)([_redact_value(each, kinds, name=name) for each in value])
        case bool():
            return value
        case int() if value >= _MIN_NUMBER or (name and _is_secret_name(name)):
            text = _redact_named_text(str(value), kinds, name)
            return value if text == str(value) else text
    return value


def _redact_named_text(text: str, kinds: list[str], name: str) -> str:
    is_named_secret = bool(name) and _is_secret_name(name)
    if not is_named_secret and _PLAIN_WORD.fullmatch(text):
        return text
    labelled = f"{name}: {text}" if is_named_secret else text
    start = len(labelled) - len(text)
    redacted, new_kinds = _redact_normalized(labelled)
    if new_kinds and not redacted.startswith(labelled[:start]):
        # The name itself is not to be told, and says nothing of what it names.
        start, (redacted, new_kinds) = 0, _redact_normalized(text)
    kinds += new_kinds
    return redacted[start:] if new_kinds else text


@erasable_cache(1024)
def _is_secret_name(name: str) -> bool:
    """Whether a value is a secret by what it is called."""
    is_any_key = name[-3:].lower() == "key" and not _ACCESS_KEY_NAME.search(name)
    return not is_any_key and any(redact(f"{name}: {each}").kinds for each in _SAMPLE_SECRETS)
