"""Recollect's own: a JSON object a line, between two marks that no memory can know."""

from __future__ import annotations

import re
from datetime import datetime
from json.encoder import encode_basestring

from recollect.model.fence import new_fence
from recollect.read.blocks.style import BlockItem, BlockSection, BlockStyle
from recollect.read.visible import remove_invisible

_BRACKETED = re.compile(r"\[(?=/?[A-Z_]+\])")


def fenced_style(now: datetime) -> BlockStyle:
    """The style with marks of its own; to be used for one block only."""
    head, foot = new_fence(now)
    return BlockStyle(
        head=head, sections=(BlockSection(line=_json_line, by_subject=True),), foot=foot, clean=_clean, mark=_unmarked
    )


def _json_line(item: BlockItem, words: str, _: int) -> str:
    # Field by field: an encoder made for each line takes as long as all the rest of it.
    speaker = f'"who": {encode_basestring(item.speaker)}, ' if item.speaker else ""
    until = f'"until": "{item.until}", ' if item.until else ""
    line = f'{{"date": "{item.date}", {until}"kind": "{item.category}", {speaker}"text": {encode_basestring(words)}}}'
    # Escaped, a tag or the mark of a chat template reads the same to a JSON parser and means nothing to a tokenizer.
    return _BRACKETED.sub(r"\\u005b", line.replace("<", r"\u003c").replace(">", r"\u003e"))


def _unmarked(_: BlockItem, words: str) -> str:
    """The words alone: a line has a field for when they ended."""
    return words


def _clean(text: str) -> str:
    return remove_invisible(text).strip()
