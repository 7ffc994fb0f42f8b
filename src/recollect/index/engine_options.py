"""What engines with a store of their own are told: where that is, and how its index is built and searched."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b

from recollect.models.embedding import EmbeddingModel


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorStoreOptions:
    """Where it is, and how its index is built and searched."""

    address: str
    token: str = ""
    collection: str = "agentic_memory"
    m: int = 16
    ef_construction: int = 256
    ef: int = 64
    timeout_s: float = 10.0

    def collection_names(self, model: EmbeddingModel) -> tuple[str, str]:
        """Where the vectors of a model can be: in that of the name alone if no other has it, else in its own."""
        return self.collection, f"{self.collection}_{model_digest(model)}"


def model_digest(model: EmbeddingModel) -> str:
    """A few letters that tell models apart in names."""
    return blake2b(str(model).encode(), digest_size=4).hexdigest()


def redact_address(address: str) -> str:
    """An address as it may be shown: without a login."""
    return address.rpartition("@")[2]
