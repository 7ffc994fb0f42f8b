"""What a recipe is made of: steps that fill a memory, and questions with what must and must not be recalled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias


@dataclass(frozen=True, slots=True)
class RecipeScope:
    """Whose memory a step is about."""

    user: str
    project: str | None = None
    session: str | None = None

    @property
    def ids(self) -> dict[str, Any]:
        """The place as the Python API names it."""
        return {"user_id": self.user, "project_id": self.project, "session_id": self.session}


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreStep:
    """Keep a memory; a `correction` replaces the value of its key however sure that is."""

    text: str | None
    fields: Mapping[str, Any] = field(default_factory=dict)
    correction: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RememberStep:
    """Keep what was said."""

    messages: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CorrectStep:
    """Change the words of a memory that an earlier step named."""

    memory: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetStep:
    """Forget a named memory, or what has a key, or everything in the place."""

    memory: str | None = None
    key: str | None = None


@dataclass(frozen=True, slots=True)
class Expected:
    """Something that must be recalled, or must not be: words of it, or a memory that an earlier step named."""

    must: bool
    words: str = ""
    memory: str = ""

    def __str__(self) -> str:
        return f'"{self.words}"' if self.words else f"the memory {self.memory}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AskStep:
    """A question, and what is expected of what is recalled for it."""

    question: str
    expected: tuple[Expected, ...]
    limit: int
    as_of: str | None = None


Action: TypeAlias = StoreStep | RememberStep | CorrectStep | ForgetStep | AskStep


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipeStep:
    """An action, where it takes place, and what later steps call what it kept."""

    number: int
    place: RecipeScope
    action: Action
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """The steps of one file, in order."""

    file: Path
    name: str
    steps: tuple[RecipeStep, ...]
