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
from recollect.model.text import mended_text
from recollect.write.screening.given import Redacting
from recollect.write.screening.redact import redact

_MARK = re.compile(r"\[redacted: [^\]\n]{1,40}\]")
_WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")
# A part of a sentence without the secret tells something if it has so many words; one with it, so many of weight.
_LEAST_WORDS = 3
_LEAST_TELLING = 2
_REDACTING = Redacting()


@dataclass(frozen=True, slots=True)
class _AboutSecrets:
    light: frozenset[str]
    joins: re.Pattern[str]
    said: re.Pattern[str]


def as_written(text: str) -> str:
    """The text that a model wrote as it may be kept."""
    return redact(normalise_invisible(mended_text(text))).text


def without_secrets(learned: Sequence[ExtractedFact]) -> tuple[list[ExtractedFact], list[str]]:
    """What was learned without its secrets, and what was left out since it said nothing else."""
    kept: list[ExtractedFact] = []
    dropped: list[str] = []
    for each in learned:
        clean = _cleaned(each)
        if (each.content and not clean.content) or is_of_secret(clean.content):
            dropped.append(f"it only says what a secret is: {clean.content}")
        else:
            kept.append(clean)
    return kept, dropped


def is_of_secret(text: str) -> bool:
    """Whether a text without its secrets only said what they were."""
    if not _MARK.search(text):
        return False
    return not any(map(_tells, _about_secrets().joins.split(text)))


def _cleaned(learned: ExtractedFact) -> ExtractedFact:
    content = normalise_invisible(learned.content).strip()
    value = normalise_invisible(learned.value).strip() if learned.value else learned.value
    fields, found = _REDACTING.fields({"content": content, "key": learned.key, "value": value})
    if found and (fields["value"] != value or fields["key"] != learned.key):
        # A profile has no use for a value that nobody may know.
        fields |= {"key": None, "value": None}
    if not found and (content, value) == (learned.content, learned.value):
        return learned
    return replace(learned, **fields)


def _tells(part: str) -> bool:
    """Whether a part of a sentence says anything but a secret."""
    about = _about_secrets()
    words = _WORD.findall(_MARK.sub(" ", part).lower())
    if not _MARK.search(part):
        return len(words) >= _LEAST_WORDS
    return not about.said.search(part) and len([word for word in words if word not in about.light]) >= _LEAST_TELLING


@cache
def _about_secrets() -> _AboutSecrets:
    table = tomllib.loads((files(__package__) / "secrets.toml").read_text(encoding="utf-8"))["statement"]
    leads, names = "|".join(table["leads"].split()), "|".join(table["names"].split())
    mark = r"[\"'“„«`(]?\[redacted: "
    light = frozenset(word for name in ("leads", "names", "light") for word in table[name].split())
    return _AboutSecrets(
        light=light,
        joins=re.compile(rf"[.;!?](?:\s+|$)|,\s|\n|\s(?:{'|'.join(table['joins'].split())})\s", re.IGNORECASE),
        # Right after what leads over to it or what it is called, or as what is spoken of.
        said=re.compile(
            rf"(?:\b(?:{leads}|{names})|[:=])\s*{mark}[^\]]*\](?!@)|^\W*\[redacted: [^\]]*\]\W*\s(?:{leads})\b",
            re.IGNORECASE,
        ),
    )
