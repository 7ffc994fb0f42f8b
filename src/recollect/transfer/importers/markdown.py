"""Markdown and text files: every bullet and paragraph is a memory."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from datetime import date

from recollect.errors import InvalidInput
from recollect.frozen_dataclass import frozen_dataclass
from recollect.text.front_matter import split_front_matter
from recollect.transfer.importers.items import SkippedItem, SourceItem, SourceRecord
from recollect.transfer.importers.source import ImportSource

_SUFFIXES = (".md", ".markdown", ".txt")
_HEADING = re.compile(r" {0,3}(#{1,6})[ \t]+(.*)")
_BULLET = re.compile(r"([ \t]*)(?:[-*+]|\d{1,9}[.)])[ \t]+(?:\[[ xX]\][ \t]+)?(.*)")
_FENCE = re.compile(r" {0,3}(?:`{3,}|~{3,})")
_RULE = re.compile(r" {0,3}(?:-[ \t]*){3,}|(?:=[ \t]*){3,}|<!--.*-->")
_FRONT_MATTER_FIELDS = (
    "category", "tags", "importance", "created_at", "updated_at", "valid_from", "valid_to", "occurred_at",
)  # fmt: skip


@frozen_dataclass
class MarkdownBlock:
    """A bullet or a paragraph, and the headings above it."""

    path: tuple[str, ...]
    text: str
    line: int

    @property
    def text_with_heading(self) -> str:
        """The text after its nearest heading, without which it is often unclear."""
        return f"{self.path[-1]}: {self.text}" if self.path else self.text


def recognise(source: ImportSource) -> str:
    """Recognise the names of text files."""
    names = source.files_ending(*_SUFFIXES)
    return f"{names[0]} is text" if names else ""


def read(source: ImportSource) -> Iterator[SourceItem]:
    """Yield every block of every file; the front matter applies to the whole file."""
    for name in source.names:
        if not name.lower().endswith(_SUFFIXES):
            yield SkippedItem(name, "not Markdown")
            continue
        try:
            meta, body = split_front_matter(source.text(name))
        except InvalidInput as error:
            yield SkippedItem(name, str(error))
            continue
        # YAML parses times itself.
        meta = {key: value.isoformat() if isinstance(value, date) else value for key, value in meta.items()}
        fields = {each: meta[each] for each in _FRONT_MATTER_FIELDS if meta.get(each) is not None}
        at = fields.pop("created_at", meta.get("date"))
        if isinstance(fields.get("tags"), str):
            fields["tags"] = [tag.strip() for tag in fields["tags"].split(",") if tag.strip()]
        seen: Counter[str] = Counter()
        for block in iter_blocks(body):
            mark = "\n".join((*block.path, block.text))
            seen[mark] += 1
            headings = {"under": list(block.path)} if block.path else {}
            yield SourceRecord(
                id=f"{name}\n{mark}\n{seen[mark]}",
                text=block.text_with_heading,
                where=f"{name}, line {block.line}",
                at=at,
                fields={**fields, "metadata": {"file": name, **headings}},
            )


def iter_blocks(text: str) -> Iterator[MarkdownBlock]:
    """Yield the bullets and paragraphs of a text in order; a fenced block is one of them."""
    path: list[tuple[int, str]] = []
    lines: list[str] = []
    start = 0
    fenced = False
    for number, line in enumerate([*text.splitlines(), ""], 1):
        fence = bool(_FENCE.match(line))
        if fenced or fence:
            fenced = fenced != fence
            start = start if lines else number
            lines.append(line.rstrip())
            continue
        heading, bullet = _HEADING.fullmatch(line), _BULLET.fullmatch(line)
        if lines and (heading or bullet or not line.strip() or _RULE.fullmatch(line)):
            yield MarkdownBlock(tuple(title for _, title in path), "\n".join(lines).strip(), start)
            lines = []
        if heading:
            depth = len(heading[1])
            path = [(level, title) for level, title in path if level < depth]
            path.append((depth, heading[2].strip(" #\t")))
        elif bullet or (line.strip() and not _RULE.fullmatch(line)):
            start = start if lines else number
            lines.append((bullet[2] if bullet else line).strip())
    if lines:
        yield MarkdownBlock(tuple(title for _, title in path), "\n".join(lines).strip(), start)
