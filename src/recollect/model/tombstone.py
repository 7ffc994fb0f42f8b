"""Tombstones: keyed digests of turns that were forgotten or erased, by which a resent history is recognised.

A digest is an HMAC, so that it reveals nothing without the key. The key of a user is derived from a secret that each
ledger creates once.
"""

from __future__ import annotations

import hmac
import secrets
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from recollect.model.invisible import normalise_invisible
from recollect.model.turn import Turn

_DIGEST_BYTES = 16
_TEXT, _ID = "text", "id"


@dataclass(frozen=True, slots=True)
class TombstoneSet:
    """A user's tombstones as they move between ledgers: the keys they were made with, and each with its time."""

    keys: tuple[str, ...] = ()
    digests: Mapping[str, datetime] = field(default_factory=dict)


def new_secret() -> str:
    """Return a random secret for a ledger."""
    return secrets.token_hex(32)


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
