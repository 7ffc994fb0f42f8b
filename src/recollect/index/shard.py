"""One user's rows in memory (visibility, traits, vectors unless it is light), and views of the visible ones."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import simsimd
from numpy.typing import NDArray

from recollect.index.protocol import Traits
from recollect.ledger.ledger import Ledger
from recollect.ledger.types import IndexRow, Revision
from recollect.model.change import Vector
from recollect.model.memory import Status
from recollect.model.scope import Scope
from recollect.model.times import now
from recollect.models.embedding import EmbeddingModel
from recollect.models.traits import Trait, first_word, trait_flags, trait_word_count

_MAX_MASKS = 8
_STEPS = 127

# The columns of a shard, their types and blank values.
_COLUMNS: tuple[tuple[str, str, float], ...] = (
    ("rows", "i8", 0),
    ("places", "i4", 0),
    ("active", "?", 0),
    ("embedded", "?", 0),
    ("sessions", "i4", -1),
    ("before", "i4", -1),
    ("after", "i4", -1),
    ("speakers", "i4", -1),
    ("flags", "i4", 0),
    ("words", "f4", 0),
    ("at_s", "f8", 0),
    ("begins_s", "f8", -np.inf),
    ("ends_s", "f8", np.inf),
    ("scales", "f4", 0),
)
# The bytes of a row without its vector, one in each of the masks included.
ROW_BYTES = sum(np.dtype(kind).itemsize for _, kind, _ in _COLUMNS) + _MAX_MASKS


def quantize(vectors: NDArray[np.floating]) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Return each vector as integers from -127 to 127, and its scale."""
    largest = np.maximum(np.abs(vectors).max(axis=1, initial=0).astype(np.float32), np.float32(1e-6))
    steps = largest / np.float32(_STEPS)
    return np.rint(vectors / steps[:, None]).astype(np.int8), steps


def unpack_vectors(vectors: Iterable[bytes | None], dimensions: int) -> NDArray[np.float16]:
    """Return packed vectors as a matrix; zeros for None."""
    blank = bytes(2 * dimensions)
    return np.frombuffer(b"".join(vector or blank for vector in vectors), dtype="<f2").reshape(-1, dimensions)


@dataclass(slots=True)
class Shard:
    """Rows in ascending order, in arrays that grow by half. A `light` shard holds no vectors.

    A search may run in a thread while the next update begins: it works on the rows counted at its start, and an
    update fills new rows before it counts them.
    """

    dimensions: int
    light: bool = False
    revision: Revision = field(default_factory=Revision)
    count: int = 0
    rows: NDArray[np.int64] = field(init=False)
    places: NDArray[np.int32] = field(init=False)
    active: NDArray[np.bool_] = field(init=False)
    embedded: NDArray[np.bool_] = field(init=False)
    sessions: NDArray[np.int32] = field(init=False)
    before: NDArray[np.int32] = field(init=False)
    after: NDArray[np.int32] = field(init=False)
    speakers: NDArray[np.int32] = field(init=False)
    flags: NDArray[np.int32] = field(init=False)
    words: NDArray[np.float32] = field(init=False)
    at_s: NDArray[np.float64] = field(init=False)
    begins_s: NDArray[np.float64] = field(init=False)
    ends_s: NDArray[np.float64] = field(init=False)
    bounded: bool = False
    # The vectors as stored, and a coarse copy of a byte per number with `scales`: a search is bound by the bytes it
    # reads.
    halves: NDArray[np.float16] = field(default_factory=lambda: np.empty((0, 0), np.float16))
    coarse: NDArray[np.int8] = field(default_factory=lambda: np.empty((0, 0), np.int8))
    scales: NDArray[np.float32] = field(init=False)
    place_codes: dict[str, int] = field(default_factory=dict)
    speaker_codes: dict[str, int] = field(default_factory=dict)
    first_names: dict[str, list[str]] = field(default_factory=dict)
    session_codes: dict[tuple[str, str], int] = field(default_factory=dict)
    last: dict[int, int] = field(default_factory=dict)
    masks: dict[tuple[int, ...], NDArray[np.bool_]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # One blank row at least, for lookups of missing rows.
        self._reserve(1)

    @property
    def nbytes(self) -> int:
        """Return the bytes of memory in use."""
        return self.halves.nbytes + self.coarse.nbytes + len(self.rows) * ROW_BYTES

    def update(self, revision: Revision, changed: Sequence[IndexRow]) -> None:
        """Apply the rows that changed since the last revision."""
        if changed:
            self._apply(sorted(changed, key=lambda row: row.row))
        # Last, because readers compare revisions to know whether the rows are there.
        self.masks = {}
        self.revision = revision

    def _apply(self, changed: Sequence[IndexRow]) -> None:
        numbers = np.fromiter((row.row for row in changed), np.int64, len(changed))
        last_row = self.rows[self.count - 1] if self.count else -1
        new_count = int((numbers > last_row).sum())
        self._reserve(self.count + new_count)
        at = np.empty(len(changed), np.int64)
        old_count = len(changed) - new_count
        at[:old_count] = np.searchsorted(self.rows[: self.count], numbers[:old_count])
        at[old_count:] = np.arange(self.count, self.count + new_count)
        self.rows[at] = numbers
        self.places[at] = [self.place_codes.setdefault(row.visibility_key, len(self.place_codes)) for row in changed]
        self.active[at] = [row.status == Status.ACTIVE for row in changed]
        self.embedded[at] = [row.vector is not None for row in changed]
        self._apply_traits(at, changed)
        if not self.light:
            halves = unpack_vectors((row.vector for row in changed), self.dimensions)
            self.halves[at] = halves
            self.coarse[at], self.scales[at] = quantize(halves)
        self._link_turns(at[old_count:], changed[old_count:])
        self.count += new_count

    def _apply_traits(self, at: NDArray[np.int64], changed: Sequence[IndexRow]) -> None:
        self.speakers[at] = [self._speaker_code(row.speaker) if row.speaker else -1 for row in changed]
        self.flags[at] = [int(trait_flags(row.traits)) for row in changed]
        self.words[at] = [trait_word_count(row.traits) for row in changed]
        self.at_s[at] = [row.at / 1e6 for row in changed]
        self.begins_s[at] = [-np.inf if row.begins is None else row.begins / 1e6 for row in changed]
        self.ends_s[at] = [np.inf if row.ends is None else row.ends / 1e6 for row in changed]
        self.bounded = self.bounded or any(row.begins is not None or row.ends is not None for row in changed)

    def _speaker_code(self, speaker: str) -> int:
        if speaker not in self.speaker_codes:
            self.speaker_codes[speaker] = len(self.speaker_codes)
            self.first_names.setdefault(first_word(speaker), []).append(speaker)
        return self.speaker_codes[speaker]

    def _link_turns(self, places: NDArray[np.int64], new_rows: Sequence[IndexRow]) -> None:
        """Link the turns of each session in order."""
        for at, row in zip(places.tolist(), new_rows, strict=True):
            if not row.session or not row.traits & Trait.TURN:
                continue
            session = self.session_codes.setdefault((row.visibility_key, row.session), len(self.session_codes))
            self.sessions[at] = session
            previous = self.last.get(session, -1)
            if previous >= 0:
                self.before[at], self.after[previous] = previous, at
            self.last[session] = at

    def _reserve(self, count: int) -> None:
        if self.count and count <= len(self.rows):
            return
        # With spare capacity, so that not every update copies everything.
        size = max(count + count // 8, self.count * 3 // 2, 64)
        for name, kind, blank in _COLUMNS:
            grown = np.full(size, blank, kind)
            if self.count:
                grown[: self.count] = getattr(self, name)[: self.count]
            setattr(self, name, grown)
        if self.light:
            return
        halves, coarse = np.empty((size, self.dimensions), np.float16), np.empty((size, self.dimensions), np.int8)
        if self.count:
            halves[: self.count], coarse[: self.count] = self.halves[: self.count], self.coarse[: self.count]
        self.halves, self.coarse = halves, coarse

    def needs_growth(self, changed: Sequence[IndexRow]) -> bool:
        """Return whether applying these rows reallocates the arrays."""
        last = self.rows[self.count - 1] if self.count else -1
        return self.count + sum(row.row > last for row in changed) > len(self.rows)

    def visible_places(self, scope: Scope) -> tuple[str, ...]:
        """Return the visibility keys that the scope can see."""
        return tuple(self.place_codes) if scope.everywhere else scope.visible_keys

    def visible_from(self, places: Sequence[str]) -> NDArray[np.bool_]:
        """Return which rows are active and in one of these places."""
        masks, count = self.masks, self.count
        codes = tuple(sorted(self.place_codes[place] for place in places if place in self.place_codes))
        mask = masks.get(codes)
        if mask is None or len(mask) != count:
            mask = self.active[:count].copy()
            if len(codes) < len(self.place_codes):
                mask &= np.isin(self.places[:count], codes)
            if len(masks) >= _MAX_MASKS:
                masks.clear()
            masks[codes] = mask
        return mask

    def turns_of(self, session: str, places: Sequence[str]) -> NDArray[np.bool_]:
        """Return which rows are turns of the session in one of these places."""
        codes = (self.session_codes.get((place, session), -1) for place in places)
        return np.isin(self.sessions, [code for code in codes if code >= 0])


# Applying up to this many rows takes a few milliseconds.
_INLINE_ROWS = 1_000


class ShardCache:
    """Shards of users, brought up to date with the ledger when requested."""

    def __init__(self, ledger: Ledger, model: EmbeddingModel, *, budget_bytes: int, light: bool = False) -> None:
        self._ledger = ledger
        self._model = model
        self._budget = budget_bytes
        self._light = light
        self._shards: OrderedDict[str, Shard] = OrderedDict()
        self._sizes: dict[str, int] = {}
        self.nbytes = 0
        # A lock lives as long as a task holds or awaits it.
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def __len__(self) -> int:
        return len(self._shards)

    def peek(self, user: str) -> Shard | None:
        """Return the user's shard as of the last request, if it is in memory."""
        return self._shards.get(user)

    async def get(self, user: str) -> Shard:
        """Return the user's rows as the ledger has them now, whichever process wrote them."""
        shard = self._shards.get(user)
        if shard is None or shard.revision != await self._ledger.revision(user):
            lock = self._locks.setdefault(user, asyncio.Lock())
            async with lock:
                shard = await self._refresh(user, self._shards.get(user))
        self._shards[user] = shard
        self._shards.move_to_end(user)
        self.nbytes += shard.nbytes - self._sizes.get(user, 0)
        self._sizes[user] = shard.nbytes
        while len(self._shards) > 1 and self.nbytes > self._budget:
            self._drop(next(iter(self._shards)))
        return shard

    async def remove(self, user: str) -> Shard | None:
        """Drop the shard of a user and return it."""
        # A refresh that is under way ends first, or it would put the rows back.
        async with self._locks.setdefault(user, asyncio.Lock()):
            shard = self._shards.get(user)
            self._drop(user)
        return shard

    def clear(self) -> None:
        """Drop all shards."""
        self._shards.clear()
        self._sizes.clear()
        self.nbytes = 0

    async def _refresh(self, user: str, shard: Shard | None) -> Shard:
        after, vectors = shard.revision.number if shard else 0, not self._light
        revision, changed = await self._ledger.index_rows(user, model=self._model, after=after, vectors=vectors)
        if shard is not None and revision.epoch != shard.revision.epoch:
            # Rows were erased: start over.
            shard = None
            revision, changed = await self._ledger.index_rows(user, model=self._model, after=0, vectors=vectors)
        shard = shard or Shard(self._model.dimensions, light=self._light)
        if len(changed) <= _INLINE_ROWS and (shard.count < _INLINE_ROWS or not shard.needs_growth(changed)):
            shard.update(revision, changed)
            return shard
        try:
            await asyncio.to_thread(shard.update, revision, changed)
        except BaseException:
            # The thread may still write to this shard, so the next request starts a new one.
            self._drop(user)
            raise
        return shard

    def _drop(self, user: str) -> None:
        self._shards.pop(user, None)
        self.nbytes -= self._sizes.pop(user, 0)


class ShardView:
    """The rows of a shard that were visible when the view was made."""

    def __init__(self, shard: Shard, mask: NDArray[np.bool_]) -> None:
        count = len(mask)
        self._shard = shard
        self._mask = mask
        self._rows = shard.rows[:count]
        self._embedded = shard.embedded[:count]
        self._last_lookup: tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]] | None = None

    @property
    def count(self) -> int:
        return int(np.count_nonzero(self._mask))

    def speakers_called(self, words: Collection[str]) -> Mapping[str, int]:
        shard = self._shard
        codes = {name: shard.speaker_codes[name] for word in words for name in shard.first_names.get(word, ())}
        speakers = shard.speakers[: len(self._mask)]
        return {name: code for name, code in codes.items() if (self._mask & (speakers == code)).any()}

    def traits(self, rows: NDArray[np.int64]) -> Traits:
        at, is_present = self._look_up(rows)
        shard = self._shard
        if is_present.all():
            return Traits(
                flags=shard.flags[at],
                words=shard.words[at],
                sessions=shard.sessions[at],
                speakers=shard.speakers[at],
                at_s=shard.at_s[at],
                embedded=shard.embedded[at],
            )
        return Traits(
            flags=np.where(is_present, shard.flags[at], 0),
            words=np.where(is_present, shard.words[at], np.float32(0)),
            sessions=np.where(is_present, shard.sessions[at], -1),
            speakers=np.where(is_present, shard.speakers[at], -1),
            at_s=np.where(is_present, shard.at_s[at], 0.0),
            embedded=is_present & shard.embedded[at],
        )

    def neighbors(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        at, is_present = self._look_up(rows)
        before = np.where(is_present, self._shard.before[at], -1)
        return self._visible_rows(before), self._visible_rows(np.where(is_present, self._shard.after[at], -1))

    def _visible_rows(self, places: NDArray[np.int32]) -> NDArray[np.int64]:
        """Return the rows at these positions of the shard, -1 for those that are not visible."""
        if not len(self._mask):
            return np.full(len(places), -1, np.int64)
        # A turn may have been added after this view was made.
        inside = (places >= 0) & (places < len(self._mask))
        places = places * inside
        return np.where(inside & self._mask[places], self._rows[places], -1)

    def is_visible(self, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        at, is_present = self._look_up(rows)
        return is_present & self._mask[at] if len(self._mask) else is_present

    def _look_up(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Return the position of each row, and whether it exists."""
        # The same candidates are looked up several times in a row.
        if self._last_lookup is not None and self._last_lookup[0] is rows:
            return self._last_lookup[1], self._last_lookup[2]
        if not len(rows) or not len(self._rows):
            return np.zeros(len(rows), np.int64), np.zeros(len(rows), np.bool_)
        at = np.minimum(np.searchsorted(self._rows, rows), len(self._rows) - 1)
        is_present = self._rows[at] == rows
        self._last_lookup = (rows, at, is_present)
        return at, is_present


def visible_mask(
    shard: Shard, places: Sequence[str], allowed: Sequence[int] | None, *, as_of: datetime | None, turns: bool
) -> NDArray[np.bool_]:
    """Return which rows of the shard are visible from these places now, limited to those `allowed` by the ledger."""
    mask = shard.visible_from(places)
    if shard.bounded and as_of is None:
        moment_s = now().timestamp()
        mask = mask & (shard.begins_s[: len(mask)] <= moment_s) & (shard.ends_s[: len(mask)] > moment_s)
    hidden = Trait.QUOTES_MEMORY if turns else Trait.TURN | Trait.QUOTES_MEMORY
    is_shown: NDArray[np.bool_] = (shard.flags[: len(mask)] & int(hidden)) == 0
    mask = mask & is_shown
    if allowed is not None:
        is_allowed = _is_among(shard.rows[: len(mask)], np.asarray(allowed, np.int64))
        # What was valid at another moment need not be active now.
        mask = is_allowed & (is_shown if as_of is not None else mask)
    return mask


def dots(vector: NDArray[Any], rows: NDArray[Any]) -> NDArray[np.float32]:
    """Return the dot product of the vector with each row, both int8 or float16, without converting them first."""
    # Without `out`: with it simsimd returns None without counting the reference, and Python crashes in the end.
    products = np.asarray(simsimd.cdist(vector[None], rows, "dot", out_dtype="float32"))
    scores: NDArray[np.float32] = products[0]
    return scores


def cosines(vector: Vector, halves: NDArray[np.float16]) -> NDArray[np.float32]:
    """Return the cosine of each row, at least 0."""
    return np.maximum(dots(vector.astype(np.float16), halves), 0)


def _is_among(rows: NDArray[np.int64], targets: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which of the rows, in ascending order, are among the targets."""
    mask = np.zeros(len(rows), np.bool_)
    at = np.searchsorted(rows, targets)
    inside = at < len(rows)
    at = at[inside]
    mask[at[rows[at] == targets[inside]]] = True
    return mask
