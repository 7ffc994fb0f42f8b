"""What a ledger gives to indexes that have to be fed: what changed, how far each of them is, and who feeds it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from recollect.models.embedding import EmbeddingModel


@dataclass(frozen=True, slots=True)
class IndexRow:
    """What an index holds of one memory: where it lives, how it stands, what it is like, its vector if it has one.

    `traits` are those of `recollect.model.traits`. Times are in microseconds: when it happened, and from when and
    until when it may be found, if that is bounded.
    """

    row: int
    visibility_key: str
    status: str
    session: str
    speaker: str
    traits: int
    at: int
    begins: int | None
    ends: int | None
    vector: bytes | None


@dataclass(frozen=True, slots=True)
class Revision:
    """How often a user's memories were changed; `epoch` moves when rows were erased."""

    number: int = 0
    epoch: int = 0


@dataclass(frozen=True, slots=True)
class ChangedRow:
    """A row as it is now, and the revision that last changed it."""

    revision: int
    row: IndexRow


@dataclass(frozen=True, slots=True)
class FeedPosition:
    """How far an index was fed with a user's rows, and since when; times are in microseconds.

    What it was told need not be seen by a search at once. `waiting` is a revision it was told at `waiting_at`, and
    `settled` one that every search sees; where writes never pause, these two go on behind the others.
    """

    revision: Revision = Revision()
    noted_at: int = 0
    waiting: int = 0
    waiting_at: int = 0
    settled: int = 0

    def visible_revision(self, settles_s: float, *, at: int) -> int:
        """The last revision of which a search sees everything, if changes are seen after so long."""
        before = at - int(settles_s * 1e6)
        if self.noted_at <= before:
            return self.revision.number
        return self.waiting if self.waiting_at <= before else self.settled

    def advanced_to(self, revision: Revision, settles_s: float, *, at: int) -> FeedPosition:
        """The same once it is fed up to this revision."""
        if revision.number < self.revision.number:
            return FeedPosition(revision, at, 0, at, 0)
        if self.waiting_at > at - int(settles_s * 1e6):
            return FeedPosition(revision, at, self.waiting, self.waiting_at, self.settled)
        return FeedPosition(revision, at, revision.number, at, self.visible_revision(settles_s, at=at))


@dataclass(frozen=True, slots=True)
class IndexLag:
    """A user of whom an index does not have everything: how far the ledger is, and how far the index."""

    user: str
    current: Revision
    indexed: Revision


class IndexFeed(Protocol):
    """Everything an index of its own store needs. It has a name, under which the ledger keeps how far it is.

    Nothing is written down when a memory changes: users whose revision is beyond that are what is left to do.
    """

    async def row_count(self, user: str, *, max_count: int, after: int = 0) -> int:
        """How many memories a user has that changed since a revision; no more than `most` are counted."""
        ...

    async def vectors_of(self, user: str, rows: Sequence[int], *, model: EmbeddingModel) -> Mapping[int, bytes]:
        """The vectors of those of these rows that are the user's and have one, as `index_rows` gives them."""
        ...

    async def changed_rows(
        self, user: str, *, model: EmbeddingModel, after: tuple[int, int], limit: int
    ) -> list[ChangedRow]:
        """Rows in the order they were last changed, from beyond a revision and a row on."""
        ...

    async def feed_position(self, user: str, *, index: str) -> FeedPosition:
        """How far the index was fed with the user's rows; a revision of 0 if never."""
        ...

    async def lagging_users(self, index: str, *, limit: int, after: str = "") -> list[IndexLag]:
        """Users, in order, of whom something changed or was erased that the index was not told of."""
        ...

    async def lease_feed(self, index: str, *, feeder: str, lease_s: float, take: bool = False) -> bool:
        """Whether this feeder, and no other, may feed the index for so long; who has the lease can renew it so.

        With `take` it is taken from whoever has it.
        """
        ...

    async def save_feed_positions(
        self, index: str, positions: Mapping[str, Revision], *, feeder: str, settles_s: float = 0.0
    ) -> bool:
        """Note how far the index is with these users, as far as they still are users; searches see it after a time.

        Nothing is noted, and the answer is no, if another has the lease by now.
        """
        ...

    async def reset_feed(self, index: str) -> None:
        """Count the index as fed with nothing."""
        ...
