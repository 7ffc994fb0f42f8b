"""How something is brought in, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from recollect.errors import InvalidInput
from recollect.movein.item import SkippedItem

# How many of those left out are named one by one.
MAX_NAMED = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportOptions:
    """Whose it becomes, and what is done with it.

    All becomes `user`'s, or stays under the names the source gives: those in `of`, or `everyone`'s. Nobody else's is
    brought in. `learn` has sessions learned from afterwards; without it they are kept and found, and cost nothing.
    """

    user: str | None = None
    of: frozenset[str] = frozenset()
    everyone: bool = False
    project: str | None = None
    learn: bool = False
    dry_run: bool = False

    def __post_init__(self) -> None:
        if self.user is not None and self.everyone:
            raise InvalidInput("give either a user whose all of it becomes, or everyone's, not both")

    def owner(self, named: str | None) -> str:
        """Whose a thing becomes that the source says is `named`'s; an InvalidInput if it may be nobody's."""
        if self.of and named is not None and named not in self.of:
            raise InvalidInput(f"it is of user {named!r}, who was not asked for")
        if self.user is not None:
            return self.user
        if named is None:
            raise InvalidInput("the source does not say whose it is: name the user it becomes")
        if not self.everyone and named not in self.of:
            raise InvalidInput(f"it is of user {named!r}, who was not asked for")
        return named


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportReport:
    """What came of it: of what kind the source was and why it was thought so, how much of it is new.

    `left` counts by reason what was left out, and `named` names the first of them. A dry run tells the same and
    writes nothing.
    """

    kind: str
    why: str = ""
    memories: int = 0
    turns: int = 0
    sessions: int = 0
    added: int = 0
    present: int = 0
    kept: int = 0
    redacted: int = 0
    users: tuple[str, ...] = ()
    left: Mapping[str, int] = field(default_factory=dict)
    named: tuple[SkippedItem, ...] = ()
    refused: int = 0
    dry_run: bool = False
    learning: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        values: dict[str, Any] = {name: getattr(self, name) for name in self.__slots__ if name != "named"}
        values["users"], values["left"] = list(self.users), dict(self.left)
        values["named"] = [{"where": each.where, "why": each.why} for each in self.named]
        return values
