"""Erasing for good: requests, what was erased from each store, and the records by which it is repeated.

Forgetting takes a memory out of recall and can be undone. Erasing removes it, with its history and everything derived
from it, and cannot be undone. The rules are the same in every store:

- Derived memories are erased too: whatever names an erased memory or turn in its evidence or in the ids of its
  detail, whatever summarises a range of turns with an erased one in it, and what was derived from that in turn.
- What had several sources, some of which stay, is erased all the same and reported as `remade`: it can be derived
  anew from what is left.
- A memory that is erased by its id is erased with the older versions it superseded. Its sources stay, and are
  reported in `stays`; erase them too if they have to go. The turns among them are forgotten and reported in `hidden`,
  because recall would find them saying the same.
- Copies of an erased turn in its session, and the next answer if it repeats the fact, are erased with the turn, or
  forgotten with the memory.
- Erased and forgotten turns leave a tombstone, so that they are not learned from again.
- What was superseded by a memory that is erased along with its source is restored.
- Rows of other users are never touched.
"""

from __future__ import annotations

import hashlib
import hmac
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from recollect.errors import InvalidInput
from recollect.model.plain import plain_fields
from recollect.model.scope import Scope
from recollect.model.text import normalise_invisible, validate_id
from recollect.model.times import as_utc
from recollect.model.turn import Turn


class Target(StrEnum):
    """How much is erased."""

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


@dataclass(frozen=True, slots=True)
class ErasureRequest:
    """What to erase of a scope: all of the user, the project or the session, or a turn or memory by its id."""

    target: Target
    id: str = ""
    # Further turns with the same text: those to erase, and those to forget.
    also: tuple[str, ...] = ()
    hide: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        validate_id(self.id, name="id")
        if bool(self.id) != (self.target in _BY_ID):
            raise InvalidInput(
                f"to erase a {self.target}, give its id"
                if self.target in _BY_ID
                else f"the scope says which {self.target} to erase; an id is only for a turn or a memory"
            )

    def check(self, scope: Scope) -> None:
        """Raise InvalidInput unless the scope names exactly what to erase, and no more."""
        if self.target is Target.USER and (scope.project or scope.session):
            raise InvalidInput("to erase all of a user, name no project and no session")
        if self.target is Target.PROJECT and (not scope.project or scope.session):
            raise InvalidInput("to erase a project, name it, and no session")
        if self.target is Target.SESSION and not scope.session:
            raise InvalidInput("to erase a session, name it")


@dataclass(frozen=True, slots=True)
class Remade:
    """Something erased that had other sources too, so that it can be derived anew.

    `kind` is the category of a memory, or "conversation" for the running summary of a session; `at_end` marks the
    episode of a whole session.
    """

    kind: str
    scope: Scope
    sources: tuple[str, ...] = ()
    turns: tuple[int, int] | None = None
    at_end: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "kind": self.kind,
            "project_id": self.scope.project or None,
            "session_id": self.scope.session or None,
            "sources": list(self.sources),
            "turns": None if self.turns is None else list(self.turns),
        }


@dataclass(frozen=True, slots=True)
class StoreErasure:
    """What was erased from one store, and whether its bytes are gone; the note says what was not reached.

    `parts` says the same of each part of a store: the rows, the full text, the log of the database. A part that no
    client can reach, such as the log of a server, counts as not reached without making the store one to retry.
    """

    store: str
    counts: Mapping[str, int] = field(default_factory=dict)
    reached: bool = True
    note: str = ""
    parts: Mapping[str, bool] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return plain_fields(self)


@dataclass(frozen=True, slots=True)
class UnreachedStore:
    """A place that no erasure reaches from here, and what to do there."""

    store: str
    note: str

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return plain_fields(self)


OUT_OF_REACH = (
    UnreachedStore("backups", "copies of the database that are older than this: replay it on one that is restored"),
    UnreachedStore("exports", "files that were exported or copied out: delete them where they are"),
    UnreachedStore("logs", "what your programs, servers and terminals wrote down elsewhere"),
    UnreachedStore("other processes", "what they hold of it in memory goes when they next ask the ledger, or end"),
    UnreachedStore("providers", "what an LLM, embedder or reranker behind an address was sent"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """The result of an erasure in each store; it holds ids and counts, none of what was erased."""

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
        """Return plain values for JSON."""
        return {
            "id": self.id,
            "at": self.at.isoformat(),
            "target": str(self.what.target),
            "target_id": self.what.id or None,
            "user_id": self.scope.user,
            "project_id": self.scope.project or None,
            "session_id": self.scope.session or None,
            "reached": self.reached,
            "stores": [store.to_dict() for store in self.stores],
            "remade": [each.to_dict() for each in self.remade],
            "stays": list(self.stays),
            "hidden": list(self.hidden),
            "out_of_reach": [each.to_dict() for each in self.out_of_reach],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Erasure:
    """The record of an erasure, to be replayed on an older backup; the user is a digest.

    `ids` are all that were erased along with one turn or memory.
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
        """Whether it can be replayed: records from before an erasure of the whole user name nothing any more."""
        return self.target is Target.USER or bool(self.project or self.session or self.ids)

    @property
    def what(self) -> ErasureRequest:
        """The request; of several ids the first stands for all."""
        return ErasureRequest(self.target, self.ids[0] if self.target in _BY_ID else "")

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON; `parse_erasure` reads them."""
        return plain_fields(self)


def parse_erasure(plain: Mapping[str, Any]) -> Erasure:
    """Parse an erasure; raise InvalidInput unless it names exactly what was erased."""
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
        raise InvalidInput(f"this is not an erasure as `to_dict` writes it: {error}") from None
    named = (bool(erasure.project), bool(erasure.session), bool(erasure.ids))
    if not erasure.user or not erasure.id or named not in _NAMED[erasure.target]:
        # A replay cannot be undone, so nothing is guessed.
        raise InvalidInput(f"this does not say which {erasure.target} was erased, or says more than that")
    return erasure


def user_digest(user: str) -> str:
    """Return the digest that stands for a user where the name must not be stored; the same in every store."""
    return hashlib.blake2b(user.encode(), digest_size=16, person=b"recollect-erased").hexdigest()


_DIGEST_BYTES = 16
_TEXT, _ID = "text", "id"


@dataclass(frozen=True, slots=True)
class TombstoneSet:
    """A user's tombstones for another ledger: the keys they were made with, and each with its time."""

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
    # NUL is in no text that is stored, so the parts cannot run into each other.
    message = "\0".join(parts).encode(errors="surrogatepass")
    return hmac.digest(key.encode(), message, "sha256")[:_DIGEST_BYTES].hex()
