"""Recollect's own: a JSON object a line, between two marks that no memory can know."""

from __future__ import annotations

import re
from datetime import datetime
from json.encoder import encode_basestring

from recollect.model.fence import new_fence
from recollect.read.blocks.style import Item, Section, Style
from recollect.read.visible import visible

_BRACKETED = re.compile(r"\[(?=/?[A-Z_]+\])")


def fenced(now: datetime) -> Style:
    """The style with marks of its own; to be used for one block only."""
    head, foot = new_fence(now)
    return Style(head=head, sections=(Section(line=_line, by_subject=True),), foot=foot, tidy=_tidy, mark=_as_is)


def _line(item: Item, words: str, _: int) -> str:
    # Field by field: an encoder made for each line takes as long as all the rest of it.
    who = f'"who": {encode_basestring(item.who)}, ' if item.who else ""
    until = f'"until": "{item.until}", ' if item.until else ""
    line = f'{{"date": "{item.date}", {until}"kind": "{item.category}", {who}"text": {encode_basestring(words)}}}'
    # Escaped, a tag or the mark of a chat template reads the same to a JSON parser and means nothing to a tokenizer.
    return _BRACKETED.sub(r"\\u005b", line.replace("<", r"\u003c").replace(">", r"\u003e"))


def _as_is(_: Item, words: str) -> str:
    """The words alone: a line has a field for when they ended."""
    return words


def _tidy(text: str) -> str:
    return visible(text).strip()
