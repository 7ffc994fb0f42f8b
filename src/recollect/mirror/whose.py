"""Whose a path is: the folder says it, and nothing in a file can say otherwise."""

from __future__ import annotations

from recollect.errors import InvalidInput
from recollect.mirror.folder import MirrorFolder
from recollect.mirror.layout import USER_FILE, USERS, FileLocation, parse_location
from recollect.mirror.names import safe_name
from recollect.model.scope import Scope


class FolderOwners:
    """Knows the users by their folders."""

    def __init__(self, folder: MirrorFolder, *, root_user: str) -> None:
        self._folder, self._root_user = folder, root_user
        self._users: dict[str, str] = {"": root_user}

    def locate(self, path: str) -> tuple[FileLocation | None, str]:
        """What a path says, and whose it is; an InvalidInput if it lies in a folder that is nobody's."""
        location = parse_location(path)
        return (None, "") if location is None else (location, self.user_of(location.base))

    def user_of(self, base: str) -> str:
        """The user whose folder it is."""
        if base not in self._users:
            self._users[base] = self._read(base)
        return self._users[base]

    def _read(self, base: str) -> str:
        name = base.removeprefix(f"{USERS}/").removesuffix("/")
        user = name
        if safe_name(name) != name:
            try:
                user = self._folder.read(base + USER_FILE)[0].decode()
            except (FileNotFoundError, UnicodeDecodeError):
                user = ""
            if not user or safe_name(user) != name:
                raise InvalidInput(f"nobody knows whose the folder {name} is: no user is written that way")
        if user == self._root_user:
            raise InvalidInput(f"the files of {user} lie in the folder above {USERS}")
        return Scope(user).user
