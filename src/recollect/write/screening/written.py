"""What somebody or something wrote down of a conversation, as it may be kept: no hidden characters, no secrets.

A model writes what it likes, also what was kept out of what it read. So it is read like what users write. A statement
that says no more than what a secret is says nothing once the secret is gone.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files

from recollect.model.extracted import ExtractedFact
from recollect.model.invisible import normalise_invisible
from recollect.model.text import repair_text
from recollect.write.screening.given import Redactor
from recollect.write.screening.redact import redact

_MARK_PATTERN = re.compile(r"\[redacted: [^\]\n]{1,40}\]")
_WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")
# A part of a sentence without the secret tells something if it has so many words; one with it, so many of weight.
_MIN_WORDS = 3
_MIN_CONTENT_WORDS = 2
_REDACTOR = Redactor()


@dataclass(frozen=True, slots=True)
class _SecretStatementCues:
    light: frozenset[str]
    joins: re.Pattern[str]
    stated: re.Pattern[str]


def clean_model_text(text: str) -> str:
    """The text that a model wrote as it may be kept."""
    return redact(normalise_invisible(repair_text(text))).text


def drop_secret_facts(facts: Sequence[ExtractedFact]) -> tuple[list[ExtractedFact], list[str]]:
    """What was learned without its secrets, and what was left out since it said nothing else."""
    accepted: list[ExtractedFact] = []
    dropped: list[str] = []
    for each in facts:
        clean = _redact_fact(each)
        if (each.content and not clean.content) or is_only_secret(clean.content):
            dropped.append(f"it only says what a secret is: {clean.content}")
        else:
            accepted.append(clean)
    return accepted, dropped


def is_only_secret(text: str) -> bool:
    """Whether a text without its secrets only said what they were."""
    if not _MARK_PATTERN.search(text):
        return False
    return not any(map(_has_content, _secret_statement_cues().joins.split(text)))


def _redact_fact(fact: ExtractedFact) -> ExtractedFact:
    content = normalise_invisible(fact.content).strip()
    value = normalise_invisible(fact.value).strip() if fact.value else fact.value
    fields, kinds = _REDACTOR.redact_fields({"content": content, "key": fact.key, "value": value})
    if kinds and (fields["value"] != value or fields["key"] != fact.key):
        # A profile has no use for a value that nobody may know.
        fields |= {"key": None, "value": None}
    if not kinds and (content, value) == (fact.content, fact.value):
        return fact
    return replace(fact, **fields)


def _has_content(part: str) -> bool:
    """Whether a part of a sentence says anything but a secret."""
    cues = _secret_statement_cues()
    words = _WORD.findall(_MARK_PATTERN.sub(" ", part).lower())
    if not _MARK_PATTERN.search(part):
        return len(words) >= _MIN_WORDS
    return (
        not cues.stated.search(part) and len([word for word in words if word not in cues.light]) >= _MIN_CONTENT_WORDS
    )


@cache
def _secret_statement_cues() -> _SecretStatementCues:
    table = tomllib.loads((files(__package__) / "secrets.toml").read_text(encoding="utf-8"))["statement"]
    leads, names = "|".join(table["leads"].split()), "|".join(table["names"].split())
    mark = r"[\"'“„«`(]?\[redacted: "
    light = frozenset(word for name in ("leads", "names", "light") for word in table[name].split())
    return _SecretStatementCues(
        light=light,
        joins=re.compile(rf"[.;!?](?:\s+|$)|,\s|\n|\s(?:{'|'.join(table['joins'].split())})\s", re.IGNORECASE),
        # Right after what leads over to it or what it is called, or as what is spoken of.
        stated=re.compile(
            rf"(?:\b(?:{leads}|{names})|[:=])\s*{mark}[^\]]*\](?!@)|^\W*\[redacted: [^\]]*\]\W*\s(?:{leads})\b",
            re.IGNORECASE,
        ),
    )
