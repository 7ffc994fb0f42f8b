"""What a ledger promises of embedding models: which one is searched, how it came to be, how far another one is."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from recollect.model.times import now
from recollect.models.embedding import EmbeddingModel


@dataclass(frozen=True, slots=True)
class ModelOrigin:
    """How settings name a model, so that it can be opened again: never with a key.

    Without a spec it was given as an object, and only who gave it can open it.
    """

    spec: str = ""
    url: str = ""
    dimensions: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelState:
    """A model as the ledger knows it; the one that `is_current` is searched.

    `embedded` of `to_embed` memories have a vector of it, as whoever makes them last said. `retired_at` is when
    another model took its place.
    """

    model: EmbeddingModel
    origin: ModelOrigin = field(default_factory=ModelOrigin)
    is_current: bool = False
    current_at: datetime | None = None
    retired_at: datetime | None = None
    embedded: int = 0
    to_embed: int = 0
    lease_expires_at: datetime | None = None

    @property
    def is_leased(self) -> bool:
        """Whether someone makes its vectors now."""
        return self.lease_expires_at is not None and self.lease_expires_at > now()

    @property
    def is_pending(self) -> bool:
        """Whether its vectors are made now, so that it will be searched."""
        return self.is_leased and not self.is_current and self.retired_at is None


@dataclass(frozen=True, slots=True)
class EmbeddingProgress:
    """How many memories have a vector of a model, of how many there are."""

    done: int
    total: int


def current_model_state(states: Iterable[ModelState]) -> ModelState | None:
    """The model that is searched; None in a ledger that was never searched."""
    return next((state for state in states if state.is_current), None)


def find_model_state(states: Iterable[ModelState], model: EmbeddingModel) -> ModelState | None:
    """What is known of a model."""
    return next((state for state in states if state.model == model), None)


class ModelStateStore(Protocol):
    """The part of a ledger that knows its models."""

    async def model_states(self) -> list[ModelState]:
        """Every model that was ever searched, or that vectors are made of for that; cheap, asked again and again."""
        ...

    async def make_current(
        self, model: EmbeddingModel, origin: ModelOrigin, *, replacing: EmbeddingModel | None
    ) -> ModelState:
        """Have a model searched from now on if `instead_of` is, or none is; gives the one that is current then.

        The one before is retired. What already is current only has its origin put down.
        """
        ...

    async def lease_model(
        self,
        model: EmbeddingModel,
        origin: ModelOrigin,
        *,
        owner: str,
        lease_s: float,
        progress: EmbeddingProgress | None = None,
    ) -> bool:
        """Be the only one to make vectors of a model, for so long; False while another is. 0 seconds let go of it."""
        ...

    async def count_embedded(self, model: EmbeddingModel) -> EmbeddingProgress:
        """How many memories have a vector of the model; takes as long as looking at each."""
        ...
