"""Permanent erasure: requests, receipts of each store, and records from which an erasure is replayed.

Forgetting takes a memory out of recall and can be undone. Erasing removes it, with its history and everything derived
from it, and cannot be undone. The rules are the same in every store:

- Derived memories are erased too, recursively: those with an erased memory or turn in their evidence or in the ids of
  their detail, and summaries of a range of turns that includes an erased one.
- A memory with several sources, some of which stay, is erased and reported as `remade`: it can be derived anew from
  the remaining ones.
- A memory that is erased by its id is erased with the older versions it superseded. Its sources stay, and are
  reported in `stays`; erase them too if they have to go. The turns among them are forgotten and reported in `hidden`,
  because recall would find them saying the same.
- Copies of an erased turn in its session, and the next answer if it repeats the fact, are erased with the turn, or
  forgotten with the memory.
- Erased and forgotten turns leave a tombstone, so that they are not stored when a client resends them.
- A memory that was superseded by one that is erased together with its source is restored.
- Rows of other users are never touched.
"""

from __future__ import annotations

import hashlib
import hmac
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import field
from datetime import datetime
from enum import StrEnum
from typing import Any

from recollect.errors import InvalidInput
from recollect.frozen_dataclass import frozen_dataclass
from recollect.model.plain import PlainValue, plain_fields
from recollect.model.scope import Scope
from recollect.model.text import normalise_invisible, validate_id
from recollect.model.times import as_utc
from recollect.model.turn import Turn


class Target(StrEnum):
    """The kind of object to erase."""

    USER = "user"
    PROJECT = "project"
    SESSION = "session"
    TURN = "turn"
    MEMORY = "memory"


_BY_ID = (Target.TURN, Target.MEMORY)
# Whether an erasure of each kind names a project, a session and ids.
_NAMED = {
    Target.USER: ((False, False, False),),
    Target.PROJECT: ((True, False, False),),
    Target.SESSION: ((True, True, False), (False, True, False)),
    Target.TURN: ((False, False, True),),
    Target.MEMORY: ((False, False, True),),
}


@frozen_dataclass
class ErasureRequest:
    """The target of an erasure: all data of the scope's user, project or session, or one turn or memory."""

    target: Target
    id: str = ""
    # Further turns with the same text: those to erase, and those to forget.
    also: tuple[str, ...] = ()
    hide: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        validate_id(self.id, name="id")
        if bool(self.id) != (self.target in _BY_ID):
            raise InvalidInput(
                f"to erase a {self.target}, pass its id"
                if self.target in _BY_ID
                else f"the scope names the {self.target} to erase; an id is only for a turn or a memory"
            )

    def check(self, scope: Scope) -> None:
        """Raise InvalidInput unless the scope has exactly the ids of the target."""
        if self.target is Target.USER and (scope.project or scope.session):
            raise InvalidInput("to erase all data of a user, pass no project and no session")
        if self.target is Target.PROJECT and (not scope.project or scope.session):
            raise InvalidInput("to erase a project, pass its id and no session")
        if self.target is Target.SESSION and not scope.session:
            raise InvalidInput("to erase a session, pass its id")


@frozen_dataclass
class Remade(PlainValue):
    """An erased record that had other sources too, from which it can be derived anew.

    `kind` is the category of a memory, or "conversation" for the running summary of a session; `at_end` marks the
    episode of a whole session.
    """

    kind: str
    scope: Scope
    sources: tuple[str, ...] = ()
    turns: tuple[int, int] | None = None
    at_end: bool = False

    def to_dict(self) -> dict[str, Any]:
        ids = {"project_id": self.scope.project or None, "session_id": self.scope.session or None}
        return {**ids, **plain_fields(self, omit=("scope", "at_end"))}


@frozen_dataclass
class StoreErasure(PlainValue):
    """The counts erased from one store, and whether its bytes are gone; `note` names the parts that were not reached.

    `parts` has the same for each part: the rows, the full text, the log of the database. A part that no client can
    reach, such as the log of a server, does not make the store one to retry.
    """

    store: str
    counts: Mapping[str, int] = field(default_factory=dict)
    reached: bool = True
    note: str = ""
    parts: Mapping[str, bool] = field(default_factory=dict)


@frozen_dataclass
class UnreachedStore(PlainValue):
    """A place that an erasure cannot reach, and the remedy."""

    store: str
    note: str


OUT_OF_REACH = (
    UnreachedStore("backups", "copies of the database that are older than this: replay it on one that is restored"),
    UnreachedStore("exports", "files that were exported or copied out: delete them where they are"),
    UnreachedStore("logs", "logs of your programs, servers and terminals"),
    UnreachedStore("other processes", "their caches are cleared when they next query the ledger, or end"),
    UnreachedStore("unsent exchanges", "those of coding agents while the server was down: ~/.recollect/unsent there"),
    UnreachedStore("providers", "texts that were sent to an LLM, embedder or reranker"),
)


@frozen_dataclass(kw_only=True)
class Receipt(PlainValue):
    """The result of an erasure in each store: ids and counts without content."""

    id: str
    at: datetime
    scope: Scope
    what: ErasureRequest
    stores: tuple[StoreErasure, ...] = ()
    remade: tuple[Remade, ...] = ()
    stays: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    out_of_reach: tuple[UnreachedStore, ...] = OUT_OF_REACH

    @property
    def reached(self) -> bool:
        """Whether every store reports that the bytes are gone."""
        return all(store.reached for store in self.stores)

    def to_dict(self) -> dict[str, Any]:
        target = {"target": str(self.what.target), "target_id": self.what.id or None, "reached": self.reached}
        return {**target, **plain_fields(self, omit=("what",))}


@frozen_dataclass(kw_only=True)
class Erasure(PlainValue):
    """The record of an erasure, to be replayed on an older backup; the user is a digest.

    `to_dict` is what `parse_erasure` reads. `ids` are those of all records erased together with one turn or memory.
    """

    id: str
    at: datetime
    user: str
    target: Target
    project: str = ""
    session: str = ""
    ids: tuple[str, ...] = ()

    @property
    def is_replayable(self) -> bool:
        """Whether it can be replayed; a later erasure of the whole user removes the ids of earlier records."""
        return self.target is Target.USER or bool(self.project or self.session or self.ids)

    @property
    def what(self) -> ErasureRequest:
        """The request, with the first of several ids."""
        return ErasureRequest(self.target, self.ids[0] if self.target in _BY_ID else "")


def parse_erasure(plain: Mapping[str, Any]) -> Erasure:
    """Parse an erasure; raise InvalidInput unless it has exactly the ids of its target."""
    try:
        erasure = Erasure(
            id=validate_id(plain["id"], name="id"),
            at=as_utc(plain["at"], name="at"),
            user=validate_id(plain["user"], name="user"),
            target=Target(plain["target"]),
            project=validate_id(plain.get("project", ""), name="project"),
            session=validate_id(plain.get("session", ""), name="session"),
            ids=tuple(validate_id(id, name="ids") for id in plain.get("ids", ())),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InvalidInput(f"not an erasure as written by `to_dict`: {error}") from None
    named = (bool(erasure.project), bool(erasure.session), bool(erasure.ids))
    if not erasure.user or not erasure.id or named not in _NAMED[erasure.target]:
        # A replay cannot be undone, so nothing is guessed.
        raise InvalidInput(f"the ids must say which {erasure.target} was erased, and nothing else")
    return erasure


def user_digest(user: str) -> str:
    """Return the digest that stands for a user where the name must not be stored; the same in every store."""
    return hashlib.blake2b(user.encode(), digest_size=16, person=b"recollect-erased").hexdigest()


_DIGEST_BYTES = 16
_TEXT, _ID = "text", "id"


@frozen_dataclass
class TombstoneSet:
    """A user's tombstones for another ledger: the keys of their digests, and the time of each digest."""

    keys: tuple[str, ...] = ()
    digests: Mapping[str, datetime] = field(default_factory=dict)


def user_key(secret: str, user: str) -> str:
    """Return the key of a user's tombstones, derived from the secret of the ledger."""
    return hmac.digest(secret.encode(), user.encode(errors="surrogatepass"), "sha256").hex()


def text_digest(key: str, role: str, text: str) -> str:
    """Return the digest of a message; case, Unicode form, spacing and invisible characters do not matter."""
    plain = " ".join(unicodedata.normalize("NFKC", normalise_invisible(text)).casefold().split())
    return _digest(key, _TEXT, role, plain)


def id_digest(key: str, turn_id: str) -> str:
    """Return the digest of the id of an erased turn."""
    return _digest(key, _ID, turn_id)


def digests_of(keys: Sequence[str], turn: Turn) -> tuple[frozenset[str], frozenset[str]]:
    """Return the digests of a turn's text and those of its id, by each of a user's keys."""
    return (
        frozenset(text_digest(key, str(turn.role), turn.content) for key in keys),
        frozenset(id_digest(key, turn.id) for key in keys),
    )


def _digest(key: str, *parts: str) -> str:
    # No stored text has a NUL, so that the parts are unambiguous.
    message = "\0".join(parts).encode(errors="surrogatepass")
    return hmac.digest(key.encode(), message, "sha256")[:_DIGEST_BYTES].hex()
