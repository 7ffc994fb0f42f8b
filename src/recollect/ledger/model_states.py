"""The embedding models of a ledger: which one is searched, where it came from, and the progress of another one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime

from recollect.model.times import now
from recollect.models.embedding import EmbeddingModel


@dataclass(frozen=True, slots=True)
class ModelOrigin:
    """How the settings name a model, so that it can be opened again; never with a key.

    Without a spec it was passed as an object, and only the caller can open it.
    """

    spec: str = ""
    url: str = ""
    dimensions: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelState:
    """A model known to the ledger; the one that `is_current` is searched.

    `embedded` of `to_embed` memories have a vector of it, as last reported. `retired_at` is when another model
    replaced it.
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
        """Whether a process is computing its vectors."""
        return self.lease_expires_at is not None and self.lease_expires_at > now()

    @property
    def is_pending(self) -> bool:
        """Whether its vectors are being computed so that it can replace the current model."""
        return self.is_leased and not self.is_current and self.retired_at is None


@dataclass(frozen=True, slots=True)
class EmbeddingProgress:
    """How many memories have a vector of a model, of how many in all."""

    done: int
    total: int


def current_model_state(states: Iterable[ModelState]) -> ModelState | None:
    """Return the model that is searched; None in a ledger that was never searched."""
    return next((state for state in states if state.is_current), None)


def find_model_state(states: Iterable[ModelState], model: EmbeddingModel) -> ModelState | None:
    """Return the state of a model."""
    return next((state for state in states if state.model == model), None)
