"""API keys: their rights, and how the text of a key is made and hashed.

A key has 256 random bits, so one round of SHA-256 is enough: it cannot be guessed.
"""

from __future__ import annotations

import hashlib
import secrets
import string
from dataclasses import field
from datetime import datetime
from typing import Any

from recollect.errors import InvalidInput
from recollect.frozen_dataclass import frozen_dataclass
from recollect.model.ids import new_id
from recollect.model.scope import Scope
from recollect.model.text import validate_id
from recollect.model.times import now

KEY_PREFIX = "rk_"
_DIGITS = string.digits + string.ascii_uppercase + string.ascii_lowercase
# 62 ** 43 is the first power of 62 that holds 256 bits.
_LENGTH = 43
_MAX_NAME_CHARS = 100


@frozen_dataclass(kw_only=True)
class ApiKey:
    """The rights of a key. Without a user it may name any; `admin` may also manage keys and all users' jobs.

    Changes with a key of a `person` may be recorded as those of a person, who approves what programs propose.
    """

    id: str
    hash: bytes = field(repr=False)
    name: str
    user: str | None = None
    project: str | None = None
    admin: bool = False
    reads: bool = True
    writes: bool = True
    person: bool = False
    created_at: datetime
    expires_at: datetime | None = None
    revoked_at: datetime | None = None
    last_used_at: datetime | None = None

    def is_active(self, at: datetime) -> bool:
        """Return whether it is neither revoked nor expired at that time."""
        return self.revoked_at is None and (self.expires_at is None or at < self.expires_at)

    @property
    def rights(self) -> str:
        """The rights in words, as they are stored."""
        words = (("admin", self.admin), ("read", self.reads), ("write", self.writes), ("person", self.person))
        return " ".join(word for word, is_granted in words if is_granted)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON, without the key's text or hash."""
        times = ("created_at", "expires_at", "revoked_at", "last_used_at")
        plain: dict[str, Any] = {"id": self.id, "name": self.name, "user_id": self.user, "project_id": self.project}
        plain |= {"admin": self.admin, "read": self.reads, "write": self.writes, "person": self.person}
        return plain | {name: at.isoformat() if (at := getattr(self, name)) else None for name in times}


@frozen_dataclass
class NewKey:
    """A new key with its text, which cannot be recovered later."""

    key: ApiKey
    text: str = field(repr=False)


def new_key(
    *,
    user: str | None = None,
    project: str | None = None,
    everyone: bool = False,
    admin: bool = False,
    reads: bool = True,
    writes: bool = True,
    person: bool = False,
    name: str = "",
    expires_at: datetime | None = None,
) -> NewKey:
    """Create a key; raise InvalidInput if it has no rights, or its scope is contradictory."""
    if admin and (user is not None or project is not None):
        raise InvalidInput("an admin key is for all users: pass neither a user nor a project")
    if user is None and not (everyone or admin):
        raise InvalidInput("pass a user, `everyone` or `admin`: a key needs one of them")
    if user is not None and everyone:
        raise InvalidInput("pass either a user or `everyone`, not both")
    if not (reads or writes):
        raise InvalidInput("a key must have the right to read or to write")
    if expires_at is not None and expires_at <= now():
        raise InvalidInput("`expires_at` must be in the future")
    if project == "":
        raise InvalidInput("`project_id` is empty; omit it, or pass an id")
    Scope("anyone" if user is None else user, project or "")
    if len(validate_id(name, name="name")) > _MAX_NAME_CHARS:
        raise InvalidInput(f"`name` must have at most {_MAX_NAME_CHARS} characters, got {len(name)}")
    text = KEY_PREFIX + _base62(secrets.randbits(256))
    key = ApiKey(
        id=new_id(),
        hash=hash_key(text),
        name=name or (user or ("admin" if admin else "everyone")),
        user=user,
        project=project,
        admin=admin,
        reads=reads,
        writes=writes,
        person=person,
        created_at=now(),
        expires_at=expires_at,
    )
    return NewKey(key, text)


def hash_key(text: str) -> bytes:
    """Return the hash that is stored of a key."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def _base62(number: int) -> str:
    digits = []
    for _ in range(_LENGTH):
        number, digit = divmod(number, 62)
        digits.append(_DIGITS[digit])
    return "".join(digits)
