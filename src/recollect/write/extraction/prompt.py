"""What the extracting model is shown: the prompt of a mode, and the talk as numbered lines of data."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from hashlib import blake2b
from importlib.resources import files

from recollect.errors import InvalidInput
from recollect.model.memory import Category
from recollect.model.turn import Turn
from recollect.prompts import prompt
from recollect.prompts.data import chars_each, json_line, new_fence, shortened

MAX_CONTEXT_CHARS = 600


@dataclass(frozen=True, slots=True)
class Style:
    """How an interaction mode is listened to; without `categories`, everything counts."""

    text: str
    categories: frozenset[Category]


@dataclass(frozen=True, slots=True)
class Question:
    """What is put to the model; `turns` and `context` as it is shown them, and which turns it is not shown whole."""

    text: str
    digest: str
    turns: tuple[Turn, ...]
    context: tuple[Turn, ...]
    shortened: tuple[str, ...]


@cache
def styles() -> dict[str, Style]:
    """The interaction modes by name."""
    read = tomllib.loads((files(__package__) / "styles.toml").read_text(encoding="utf-8"))
    return {
        name: Style(each["text"].strip(), frozenset(map(Category, each.get("categories", ()))))
        for name, each in read.items()
    }


def style_of(mode: str) -> Style:
    """The style of a mode, or an InvalidInput that names the modes there are."""
    if mode not in styles():
        raise InvalidInput(f"there is no interaction mode {mode!r}; the modes are {', '.join(styles())}")
    return styles()[mode]


def question(turns: Sequence[Turn], *, context: Sequence[Turn], mode: str) -> Question:
    """The prompt, the same from one call to the next up to the talk itself, so that providers can cache it."""
    style = style_of(mode)
    share = chars_each(len(turns))
    before = tuple(replace(turn, content=shortened(turn.content, MAX_CONTEXT_CHARS)) for turn in context)
    shown = tuple(replace(turn, content=shortened(turn.content, share)) for turn in turns)
    lines = [_line("before", True, turn) for turn in before]
    lines += [_line("turn", number, turn) for number, turn in enumerate(shown, 1)]
    extract = prompt("extract")
    # One line of JSON a turn: nothing that was said can end the fence.
    text = extract.fill(style=style.text, fence=new_fence(), conversation="\n".join(lines))
    digest = blake2b(f"{extract.digest} {style.text}".encode(), digest_size=8).hexdigest()
    cut = tuple(turn.id for turn in turns if len(turn.content) > share)
    return Question(text, digest, shown, before, cut)


def _line(mark: str, number: int | bool, turn: Turn) -> str:
    line: dict[str, object] = {mark: number, "day": f"{turn.said_at:%Y-%m-%d %A}", "who": str(turn.role)}
    if turn.name:
        line["name"] = turn.name
    return json_line({**line, "said": turn.content})
