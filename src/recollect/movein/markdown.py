"""Plain Markdown: each bullet and each paragraph is a memory, and the headings above say of what."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from recollect.errors import InvalidInput
from recollect.movein.front_matter import split
from recollect.movein.item import Found, Item, Left
from recollect.movein.source import Source

_ENDS = (".md", ".markdown", ".txt")
_HEADING = re.compile(r" {0,3}(#{1,6})[ \t]+(.*)")
_BULLET = re.compile(r"([ \t]*)(?:[-*+]|\d{1,9}[.)])[ \t]+(?:\[[ xX]\][ \t]+)?(.*)")
_FENCE = re.compile(r" {0,3}(?:`{3,}|~{3,})")
_RULE = re.compile(r" {0,3}(?:-[ \t]*){3,}|(?:=[ \t]*){3,}|<!--.*-->")
_GIVEN = ("category", "tags", "importance", "created_at", "updated_at", "valid_from", "valid_to", "occurred_at")


@dataclass(frozen=True, slots=True)
class Piece:
    """A bullet or a paragraph, and the headings it stands under."""

    path: tuple[str, ...]
    text: str
    line: int

    @property
    def told(self) -> str:
        """Its words, led by the heading they need to be understood."""
        return f"{self.path[-1]}: {self.text}" if self.path else self.text


def recognise(source: Source) -> str:
    """By the names of its files."""
    names = source.ending(*_ENDS)
    return f"{names[0]} is text" if names else ""


def read(source: Source) -> Iterator[Item]:
    """Every piece of every file; front matter counts for the whole file."""
    for name in source.names:
        if not name.lower().endswith(_ENDS):
            yield Left(name, "it is no Markdown")
            continue
        try:
            meta, words = split(source.text(name), name)
        except InvalidInput as error:
            yield Left(name, str(error))
            continue
        fields = {each: meta[each] for each in _GIVEN if meta.get(each) is not None}
        at = fields.pop("created_at", meta.get("date"))
        if isinstance(fields.get("tags"), str):
            fields["tags"] = [tag.strip() for tag in fields["tags"].split(",") if tag.strip()]
        seen: dict[str, int] = {}
        for piece in pieces(words):
            mark = "\n".join((*piece.path, piece.text))
            seen[mark] = seen.get(mark, 0) + 1
            under = {"under": list(piece.path)} if piece.path else {}
            yield Found(
                id=f"{name}\n{mark}\n{seen[mark]}",
                text=piece.told,
                where=f"{name}, line {piece.line}",
                at=at,
                fields={**fields, "metadata": {"file": name, **under}},
            )


def pieces(text: str) -> Iterator[Piece]:
    """The bullets and paragraphs of a text, in order; what is fenced stays whole."""
    path: list[tuple[int, str]] = []
    held: list[str] = []
    began = 0
    fenced = False
    for number, line in enumerate([*text.splitlines(), ""], 1):
        fence = bool(_FENCE.match(line))
        if fenced or fence:
            fenced = fenced != fence
            began = began if held else number
            held.append(line.rstrip())
            continue
        heading, bullet = _HEADING.fullmatch(line), _BULLET.fullmatch(line)
        if held and (heading or bullet or not line.strip() or _RULE.fullmatch(line)):
            yield Piece(tuple(title for _, title in path), "\n".join(held).strip(), began)
            held = []
        if heading:
            depth = len(heading[1])
            path = [(level, title) for level, title in path if level < depth]
            path.append((depth, heading[2].strip(" #\t")))
        elif bullet or (line.strip() and not _RULE.fullmatch(line)):
            began = began if held else number
            held.append((bullet[2] if bullet else line).strip())
    if held:
        yield Piece(tuple(title for _, title in path), "\n".join(held).strip(), began)
