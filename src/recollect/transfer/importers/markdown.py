"""The YAML at the head of a Markdown file, as plain values."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

from recollect.errors import InvalidInput
from recollect.transfer.importers.items import SkippedItem, SourceItem, SourceRecord
from recollect.transfer.importers.source import ImportSource

_MAX_FRONT_MATTER = 1 << 16


def read_front_matter(text: str, name: str) -> tuple[dict[str, Any], str]:
    """The front matter and the words after it; there need not be any."""
    if not text.startswith("---\n") and not text.startswith("---\r\n"):
        return {}, text.strip()
    head, fence, body = text[3:].replace("\r\n", "\n").partition("\n---")
    if not fence or len(head) > _MAX_FRONT_MATTER:
        raise InvalidInput(f"the front matter of {name} has no end")
    import yaml

    try:
        # Aliases could make a few lines a million values; no front matter needs them.
        if "&" in head and any(isinstance(token, yaml.AliasToken) for token in yaml.scan(head)):
            raise InvalidInput(f"the front matter of {name} uses aliases")
        # Not by the loader in C, which is faster: what is nested too deep makes that one end the process.
        meta = yaml.safe_load(head) or {}
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InvalidInput(f"the front matter of {name} is no YAML: {str(error).splitlines()[0]}") from None
    if not isinstance(meta, dict):
        raise InvalidInput(f"the front matter of {name} is no mapping")
    return {str(key): _to_json_value(value) for key, value in meta.items()}, body.partition("\n")[2].strip()


def _to_json_value(value: Any) -> Any:
    """What JSON can hold: YAML makes times of its own accord."""
    if isinstance(value, date | datetime):
        return value.isoformat()
    if isinstance(value, dict):
        return {str(key): _to_json_value(each) for key, each in value.items()}
    return [_to_json_value(each) for each in value] if isinstance(value, list | set | tuple) else value


_SUFFIXES = (".md", ".markdown", ".txt")
_HEADING = re.compile(r" {0,3}(#{1,6})[ \t]+(.*)")
_BULLET = re.compile(r"([ \t]*)(?:[-*+]|\d{1,9}[.)])[ \t]+(?:\[[ xX]\][ \t]+)?(.*)")
_FENCE = re.compile(r" {0,3}(?:`{3,}|~{3,})")
_RULE = re.compile(r" {0,3}(?:-[ \t]*){3,}|(?:=[ \t]*){3,}|<!--.*-->")
_FRONT_MATTER_FIELDS = (
    "category",
    "tags",
    "importance",
    "created_at",
    "updated_at",
    "valid_from",
    "valid_to",
    "occurred_at",
)


@dataclass(frozen=True, slots=True)
class MarkdownBlock:
    """A bullet or a paragraph, and the headings it stands under."""

    path: tuple[str, ...]
    text: str
    line: int

    @property
    def text_with_heading(self) -> str:
        """Its words, led by the heading they need to be understood."""
        return f"{self.path[-1]}: {self.text}" if self.path else self.text


def recognise(source: ImportSource) -> str:
    """By the names of its files."""
    names = source.files_ending(*_SUFFIXES)
    return f"{names[0]} is text" if names else ""


def read(source: ImportSource) -> Iterator[SourceItem]:
    """Every piece of every file; front matter counts for the whole file."""
    for name in source.names:
        if not name.lower().endswith(_SUFFIXES):
            yield SkippedItem(name, "it is no Markdown")
            continue
        try:
            meta, body = read_front_matter(source.text(name), name)
        except InvalidInput as error:
            yield SkippedItem(name, str(error))
            continue
        fields = {each: meta[each] for each in _FRONT_MATTER_FIELDS if meta.get(each) is not None}
        at = fields.pop("created_at", meta.get("date"))
        if isinstance(fields.get("tags"), str):
            fields["tags"] = [tag.strip() for tag in fields["tags"].split(",") if tag.strip()]
        seen: dict[str, int] = {}
        for block in iter_blocks(body):
            mark = "\n".join((*block.path, block.text))
            seen[mark] = seen.get(mark, 0) + 1
            headings = {"under": list(block.path)} if block.path else {}
            yield SourceRecord(
                id=f"{name}\n{mark}\n{seen[mark]}",
                text=block.text_with_heading,
                where=f"{name}, line {block.line}",
                at=at,
                fields={**fields, "metadata": {"file": name, **headings}},
            )


def iter_blocks(text: str) -> Iterator[MarkdownBlock]:
    """The bullets and paragraphs of a text, in order; what is fenced stays whole."""
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
