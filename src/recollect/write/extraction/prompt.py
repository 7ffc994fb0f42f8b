"""What the extracting model is shown: the prompt of a mode, and the talk as numbered lines of data."""

from __future__ import annotations

import json
import secrets
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

# What small models with a context of 8,192 tokens can read, the answer included.
MAX_TALK_CHARS = 16_000
# However many turns there are, so much of each is shown.
LEAST_TURN_CHARS = 200
MAX_CONTEXT_CHARS = 600
MAX_KNOWN = 20
MAX_KNOWN_CHARS = 200


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


def question(turns: Sequence[Turn], *, context: Sequence[Turn], known: Sequence[str], mode: str) -> Question:
    """The prompt, the same from one call to the next up to the talk itself, so that providers can cache it."""
    style = style_of(mode)
    share = max(LEAST_TURN_CHARS, MAX_TALK_CHARS // max(1, len(turns)))
    lines = [
        json.dumps({"known": _shortened(each, MAX_KNOWN_CHARS)}, ensure_ascii=False) for each in known[:MAX_KNOWN]
    ]
    before = tuple(replace(turn, content=_shortened(turn.content, MAX_CONTEXT_CHARS)) for turn in context)
    shown = tuple(replace(turn, content=_shortened(turn.content, share)) for turn in turns)
    lines += [_line("before", True, turn) for turn in before]
    lines += [_line("turn", number, turn) for number, turn in enumerate(shown, 1)]
    # A fresh secret each time, and one line of JSON a turn: nothing that was said can end the fence.
    fence = f"=== {secrets.token_hex(16)} ==="
    extract = prompt("extract")
    text = extract.fill(style=style.text, fence=fence, conversation="\n".join(lines))
    digest = blake2b(f"{extract.digest} {style.text}".encode(), digest_size=8).hexdigest()
    shortened = tuple(turn.id for turn in turns if len(turn.content) > share)
    return Question(text, digest, shown, before, shortened)


def _line(mark: str, number: int | bool, turn: Turn) -> str:
    line: dict[str, object] = {mark: number, "day": f"{turn.said_at:%Y-%m-%d %A}", "who": str(turn.role)}
    if turn.name:
        line["name"] = turn.name
    return json.dumps({**line, "said": turn.content}, ensure_ascii=False)


def _shortened(text: str, chars: int) -> str:
    """The beginning and the end of a long text: what matters is rarely in the middle."""
    if len(text) <= chars:
        return text
    half = chars // 2
    return f"{text[:half]} […] {text[-half:]}"
