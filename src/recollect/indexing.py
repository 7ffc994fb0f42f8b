"""The index the settings name, over a ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recollect.errors import InvalidSettings
from recollect.ledger.protocol import Ledger
from recollect.models.embedding import EmbeddingModel
from recollect.settings import Settings

if TYPE_CHECKING:
    from recollect.index.engine import ExternalVectorStore
    from recollect.index.protocol import Index

_MIB = 1 << 20
MILVUS_FILE, CHROMA_FOLDER = "milvus.db", "chroma"
# A batch of rows takes longer than a search.
_SYNC_TIMEOUT_S = 15.0


def open_index(settings: Settings, ledger: Ledger, model: EmbeddingModel) -> Index:
    """The index; one with a store of its own is not asked for anything yet."""
    budget = settings.index_memory_mb * _MIB
    if settings.index in ("auto", "exact"):
        from recollect.index.exact import ExactIndex

        return ExactIndex(ledger, model, budget_bytes=budget)
    from recollect.index.engine_index import VectorStoreIndex, VectorStoreLimits
    from recollect.index.feeder import IndexSync

    sizes = VectorStoreLimits(
        exact_rows=settings.index_exact_rows, budget_bytes=budget, timeout_s=settings.index_timeout_s
    )
    if settings.index == "pgvector":
        from recollect.index.pgvector import open_pgvector

        return VectorStoreIndex(ledger, model, open_pgvector(ledger, model), limits=sizes)
    engine = open_engine(settings, model)
    feeder = IndexSync(ledger, model, engine, feed_name=_sync_name(settings, model))
    return VectorStoreIndex(ledger, model, engine, limits=sizes, sync=feeder)


def open_engine(settings: Settings, model: EmbeddingModel) -> ExternalVectorStore:
    """The vector database the settings name."""
    if settings.index == "milvus":
        from recollect.index.milvus import MilvusOptions, MilvusVectorStore

        return MilvusVectorStore(
            MilvusOptions(
                address=_milvus_address(settings),
                token=settings.milvus_token.get_secret_value(),
                collection=settings.milvus_collection,
                m=settings.milvus_m,
                ef_construction=settings.milvus_ef_construction,
                ef=settings.milvus_ef,
                timeout_s=_SYNC_TIMEOUT_S,
            ),
            model,
        )
    if settings.index == "chroma":
        from recollect.index.chroma import ChromaOptions, ChromaVectorStore

        return ChromaVectorStore(
            ChromaOptions(
                address=_chroma_address(settings),
                token=settings.chroma_token.get_secret_value(),
                collection=settings.chroma_collection,
                timeout_s=_SYNC_TIMEOUT_S,
            ),
            model,
        )
    raise InvalidSettings(f"index: {settings.index} is not part of this version")


def _milvus_address(settings: Settings) -> str:
    from recollect.index.milvus import MilvusOptions

    address = settings.milvus_address or str(settings.home.expanduser() / MILVUS_FILE)
    if MilvusOptions(address=address).is_lite and not address.endswith(".db"):
        raise InvalidSettings(f"milvus_address: {address!r} is no file.db, no host:port and no http:// address")
    return address


def _chroma_address(settings: Settings) -> str:
    return settings.chroma_address or str(settings.home.expanduser() / CHROMA_FOLDER)


def _sync_name(settings: Settings, model: EmbeddingModel) -> str:
    """What the ledger's notes call it: another wherever it is moved to, and for every model, to be fed anew."""
    is_milvus = settings.index == "milvus"
    address = _milvus_address(settings) if is_milvus else _chroma_address(settings)
    collection = settings.milvus_collection if is_milvus else settings.chroma_collection
    return f"{settings.index} {address.rpartition('@')[2]} {collection} {model}"
