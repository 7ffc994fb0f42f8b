"""Interaction modes: what extraction looks for in a chat, a document, a task or a profile."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from recollect.errors import InvalidInput
from recollect.model.memory import Category


@dataclass(frozen=True, slots=True)
class ExtractionMode:
    """The part of the prompt that a mode brings, and the categories it keeps (empty: all)."""

    text: str
    categories: frozenset[Category]


@cache
def load_modes() -> dict[str, ExtractionMode]:
    """Return the interaction modes by name."""
    table = tomllib.loads((files(__package__) / "modes.toml").read_text(encoding="utf-8"))
    return {
        name: ExtractionMode(each["text"].strip(), frozenset(map(Category, each.get("categories", ()))))
        for name, each in table.items()
    }


def get_extraction_mode(name: str) -> ExtractionMode:
    """Return a mode, or raise an InvalidInput that lists the modes."""
    if name not in load_modes():
        raise InvalidInput(f"there is no interaction mode {name!r}; the modes are {', '.join(load_modes())}")
    return load_modes()[name]
