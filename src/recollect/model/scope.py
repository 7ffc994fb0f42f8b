"""Scopes: the user, project and session of a memory, and where it is visible."""

from __future__ import annotations

from enum import StrEnum

from recollect.errors import InvalidInput
from recollect.frozen_dataclass import frozen_dataclass
from recollect.model.text import validate_id

# Ids cannot contain control characters, so joined ids are unambiguous.
_SEPARATOR = "\x1f"


class Level(StrEnum):
    """Where a memory is visible: to its user everywhere, in one project, or in one session."""

    USER = "user"
    PROJECT = "project"
    SESSION = "session"


@frozen_dataclass
class Scope:
    """A user, and optionally one of their projects and one of its sessions."""

    user: str
    project: str = ""
    session: str = ""
    # Whether all projects and sessions of the user are visible.
    everywhere: bool = False

    def __post_init__(self) -> None:
        validate_id(self.user, name="user_id")
        validate_id(self.project, name="project_id")
        validate_id(self.session, name="session_id")
        if not self.user.strip():
            raise InvalidInput("`user_id` is empty; every memory belongs to a user")

    def visibility_key(self, level: Level) -> str:
        """Return the text that identifies where a memory of this scope and level is visible."""
        if level is Level.USER:
            return ""
        if level is Level.PROJECT:
            return f"p{_SEPARATOR}{self.project}"
        return f"s{_SEPARATOR}{self.project}{_SEPARATOR}{self.session}"

    def can_see(self, key: str) -> bool:
        """Return whether recall in this scope sees memories with the visibility key."""
        return self.everywhere or key in self.visible_keys

    @property
    def visible_keys(self) -> tuple[str, ...]:
        """The visibility keys that recall in this scope sees: the user's, this project's, this session's."""
        keys = [""]
        if self.project:
            keys.append(self.visibility_key(Level.PROJECT))
        if self.session:
            keys.append(self.visibility_key(Level.SESSION))
        return tuple(keys)

    @property
    def default_level(self) -> Level:
        """The default level of facts learned in this scope: the project if there is one, else the user."""
        return Level.PROJECT if self.project else Level.USER

    def to_dict(self) -> dict[str, str | None]:
        """Return the ids by their names in the API; None for those that are not set."""
        return {"user_id": self.user, "project_id": self.project or None, "session_id": self.session or None}

    def check_level(self, level: Level) -> Level:
        """Return the level; raise InvalidInput if this scope lacks the project or session of the level."""
        if level is Level.PROJECT and not self.project:
            raise InvalidInput("level 'project' needs a project_id")
        if level is Level.SESSION and not self.session:
            raise InvalidInput("level 'session' needs a session_id")
        return level
