"""The settings of what finds the nearest vectors: declared once, typed, bounded."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr


class IndexSettings(BaseModel):
    """Who searches for users with many memories, and where that is."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    index: Annotated[
        Literal["auto", "exact", "pgvector", "milvus", "chroma"],
        Field(
            description="What searches the vectors of users with many memories: exact (in memory), pgvector, milvus "
            "or chroma (extras); auto is exact."
        ),
    ] = "auto"
    index_exact_rows: Annotated[
        int,
        Field(ge=0, le=10_000_000, description="Up to so many memories of a user are searched exactly, in memory."),
    ] = 50_000
    index_timeout_s: Annotated[
        float, Field(gt=0, le=60, description="Longest wait for it; then the ledger's vectors are searched.")
    ] = 1.0
    milvus_address: Annotated[
        str,
        Field(
            description="Where Milvus is: a file (Milvus Lite), host:19530 or an http:// address of a server or "
            "cluster. Empty for a file in `home`."
        ),
    ] = ""
    milvus_token: Annotated[SecretStr, Field(description="Its token, or user:password.")] = SecretStr("")
    milvus_collection: Annotated[
        str,
        Field(
            pattern="^[A-Za-z_][A-Za-z0-9_]{0,200}$",
            description="Its collection, which no other ledger may use; a second model has one with a suffix.",
        ),
    ] = "agentic_memory"
    milvus_m: Annotated[int, Field(ge=2, le=2048, description="How many neighbours a vector has in its HNSW.")] = 16
    milvus_ef_construction: Annotated[
        int, Field(ge=8, le=4096, description="How many are looked at when one is added.")
    ] = 256
    milvus_ef: Annotated[int, Field(ge=8, le=4096, description="How many are looked at, at least, in a search.")] = 64
    chroma_address: Annotated[
        str,
        Field(description="Where Chroma is: a folder, or the http:// address of a server. Empty for one in `home`."),
    ] = ""
    chroma_token: Annotated[SecretStr, Field(description="Bearer token for that server.")] = SecretStr("")
    chroma_collection: Annotated[
        str,
        Field(
            pattern="^[A-Za-z0-9][A-Za-z0-9._-]{1,200}[A-Za-z0-9]$",
            description="Its collection, which no other ledger may use; a second model has one with a suffix.",
        ),
    ] = "agentic_memory"
