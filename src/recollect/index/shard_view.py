"""The visible rows of a shard and their traits: what the views of all indexes have in common."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import simsimd

from recollect.index.protocol import Traits
from recollect.index.shard import Shard
from recollect.model.times import now
from recollect.model.traits import Trait

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from recollect.model.change import Vector


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
    if not turns:
        mask = mask & ((shard.flags[: len(mask)] & int(Trait.TURN)) == 0)
    if allowed is not None:
        is_allowed = _is_among(shard.rows[: len(mask)], np.asarray(allowed, np.int64))
        # What was valid at another moment need not be active now.
        valid_then = is_allowed if turns else is_allowed & ((shard.flags[: len(mask)] & int(Trait.TURN)) == 0)
        mask = valid_then if as_of is not None else mask & is_allowed
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
