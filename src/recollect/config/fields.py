"""All settings, each declared once with its type, limits and description."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import PrivateAttr, SecretStr, model_validator

from recollect.config.name_mapping import with_current_names
from recollect.config.presets import read_preset
from recollect.config.server_fields import (
    AgentSettings,
    AuthSettings,
    McpServerSettings,
    OperationSettings,
    ServerSettings,
    SettingsGroup,
    setting,
)


class StoreSettings(SettingsGroup):
    """The settings of the ledger, the embedding model and the defaults of searches."""

    home: Path = setting(Path("~/.recollect"), "Folder of the ledger and of config.toml.")
    preset: str = setting("", "Named defaults; see below. Empty for Recollect's own.")
    database: str = setting("", "The ledger: empty for a file in `home`, a postgresql:// address, or memory:.")
    postgres_connections: int = setting(
        10, "Maximum number of connections of a process to PostgreSQL; all but two may write.", ge=3, le=1000
    )
    embedder: str = setting(
        "bundled",
        "The embedding model: bundled, openai:MODEL, model2vec:NAME, sentence-transformers:NAME, "
        "fastembed:NAME or neural (an extra).",
    )
    embedder_url: str = setting(
        "https://api.openai.com/v1",
        "Base URL of an OpenAI-compatible endpoint for embeddings.",
        aliases=(
            "EMBEDDING_BASE_URL",
            "OPENAI_BASE_URL",
        ),
    )
    embedder_api_key: SecretStr = setting(SecretStr(""), "API key for `embedder_url`.", aliases=("OPENAI_API_KEY",))
    embedder_dimensions: int = setting(
        0, "Request vectors of this size; 0 for the size of the model.", ge=0, le=16_384
    )
    embedder_timeout_s: float = setting(30.0, "Timeout for embeddings.", gt=0, le=600)
    previous_embedder_url: str = setting(
        "", "During a change of the embedder: base URL of the earlier one; empty for its recorded one."
    )
    previous_embedder_api_key: SecretStr = setting(
        SecretStr(""), "API key of the earlier embedder; empty for that of `embedder` if the URL is the same."
    )
    embedding_cache_mb: int = setting(32, "Memory for cached embeddings; 0 disables the cache.", ge=0, le=65_536)
    index_memory_mb: int = setting(
        1024, "Memory for users' vectors; the least recently used are evicted.", ge=16, le=1_048_576
    )
    search_limit: int = setting(10, "Default number of hits of a search.", ge=1, le=1000)
    search_min_score: float = setting(0.15, "Minimum relevance of a hit, from 0 to 1.", ge=0, le=1)
    late_interaction: bool = setting(
        True,
        "Also compare questions with memories word piece by word piece, with a small bundled network: better ranking"
        " for about 2 ms a search, 3 kB a memory, and 3 ms of background work for each write.",
    )


class RankingSettings(SettingsGroup):
    """The settings of scoring, reranking and selection."""

    fusion: Literal["learned", "rrf", "weights"] = setting(
        "learned", "How signals are fused to one score: the learned blend, reciprocal ranks, or fixed weights."
    )
    recency_weight: float = setting(0.2, "Weight of recency, from 0 to 1.", ge=0, le=1)
    recency_adds: bool = setting(
        False,
        "Whether recency adds to the score; otherwise an old memory loses up to recency_weight of its"
        " relevance, and a recent one gains nothing.",
    )
    recency_days: float = setting(30.0, "Age at which recency has decayed to 37 %.", gt=0, le=36_500)
    importance_weight: float = setting(0.0, "Weight of importance in the score, from 0 to 1.", ge=0, le=1)
    access_weight: float = setting(0.0, "Weight of the access count in the score, from 0 to 1.", ge=0, le=1)
    diversity: float = setting(
        0.7, "Relevance against diversity when hits are selected: 1 is relevance only.", ge=0, le=1
    )
    hits_per_source: int = setting(2, "Maximum number of hits from the same turn.", ge=1, le=1000)
    search_elbow: bool = setting(False, "Cut the hits where the scores drop steeply.")
    rerank_mode: Literal["blend", "replace"] = setting(
        "blend", "How the reranker's score is used: blended with the relevance, or instead of it."
    )
    rerank_candidates: int = setting(30, "Number of candidates that are reranked.", ge=1, le=200)
    rerank_timeout_s: float = setting(2.0, "Timeout of the reranker; its scores are then not used.", gt=0, le=60)

    @model_validator(mode="after")
    def _check_weights(self) -> Self:
        if self.recency_adds * self.recency_weight + self.importance_weight + self.access_weight > 1:
            raise ValueError("the weights of recency, importance and access must not add up to more than 1")
        return self


class RecallSettings(RankingSettings):
    """The settings of recall, including those of its ranking."""

    recall_decide: bool = setting(True, "Skip recall for greetings, general knowledge and tool requests.")
    recall_timeout_s: float = setting(
        5.0, "Timeout of a recall; the chat then continues without memories.", gt=0, le=600
    )
    recall_facts: int = setting(
        20, "Maximum number of keyed facts, constraints and instructions recalled for every question.", ge=0, le=1000
    )
    recall_facts_min_importance: float = setting(
        0.5, "Minimum importance of facts recalled for every question.", ge=0, le=1
    )
    time_words: Literal["prefer", "filter", "off"] = setting(
        "prefer", 'Effect of "last March" in a question: prefer that period, filter by it, or none.'
    )
    rewrite: Literal["auto", "off", "terms", "llm", "hyde"] = setting(
        "auto",
        "How a vague question is completed: with terms of the last messages, by the LLM, by a "
        "hypothetical answer of the LLM (hyde), or auto: terms first, then the LLM if there is one "
        "and the question is still vague.",
    )
    rewrite_timeout_s: float = setting(
        2.0, "Timeout of a rewrite by the LLM; terms of the last messages are used then.", gt=0, le=60
    )
    context_tokens: int = setting(2048, "Maximum number of tokens of memories in a prompt.", ge=256, le=1_000_000)
    context_format: Literal[
        "recollect", "semantic-router", "react-mem", "session-service", "markdown-proxy", "three-tier"
    ] = setting("recollect", "Format of the memories in a prompt.")
    context_place: Literal["before-question", "system", "system-message", "question"] = setting(
        "before-question",
        "Where memories are inserted: a message before the last user message, the end of the system message, a "
        "system message of their own (system-message), or the last user message (question).",
    )
    context_summary: bool = setting(False, "Whether the summary of the conversation is inserted as well.")
    context_invocations: bool = setting(
        False, "Whether summaries of the earlier exchanges of this conversation are inserted as well."
    )
    recall_conversation: int = setting(
        0,
        "Number of latest turns of the session that are inserted if the request has no history; requests that name"
        " no session then continue one session for each user. 0 for none.",
        ge=0,
        le=1000,
    )
    recall_turns: bool = setting(True, "Whether turns are recalled in addition to the memories extracted from them.")
    recall_excluded_tags: str = setting(
        "", "Tags, separated by commas: memories with one of them are never put into a prompt."
    )

    @cached_property
    def excluded_tags(self) -> frozenset[str]:
        """The tags of memories that are never put into a prompt."""
        return frozenset(filter(None, map(str.strip, self.recall_excluded_tags.split(","))))


class ModelSettings(SettingsGroup):
    """The settings of the LLM and the reranker."""

    llm: str = setting(
        "",
        "Model for rewriting questions and for learning: a name at llm_url, local:FILE.gguf or "
        "local:smollm2 (an extra); empty for none.",
    )
    llm_url: str = setting(
        "https://api.openai.com/v1",
        "Base URL of the OpenAI-compatible endpoint of `llm`.",
        aliases=("OPENAI_BASE_URL",),
    )
    llm_api_key: SecretStr = setting(SecretStr(""), "API key for `llm_url`.", aliases=("OPENAI_API_KEY",))
    llm_timeout_s: float = setting(60.0, "Timeout for an answer of the LLM.", gt=0, le=600)
    llm_user_tokens_per_day: int = setting(
        0,
        "Maximum number of LLM tokens a day for each user; 0 for no limit. If it is not set, learning"
        " with the upstream (learn_with_upstream) is limited to 100,000.",
        ge=0,
    )
    llm_tokens_per_day: int = setting(
        0, "Maximum number of LLM tokens a day for all users together; 0 for no limit.", ge=0
    )
    llm_size: Literal["auto", "small", "large"] = setting(
        "auto",
        "Size of the LLM: a small one gets a short prompt and is assisted by the built-in selector. auto: from the "
        "number of parameters in its name or file, small up to 4 billion.",
    )
    llm_context_tokens: int = setting(8192, "Context window of a local model, in tokens.", ge=1024, le=131_072)
    reranker: str = setting(
        "none",
        "Model that reranks the best candidates: none, neural (an extra), auto (neural if it is installed),"
        " sentence-transformers:NAME, fastembed:NAME or http:MODEL.",
    )
    reranker_url: str = setting("", "Address of an HTTP reranker with the API of Cohere, Jina or TEI.")
    reranker_api_key: SecretStr = setting(SecretStr(""), "API key for `reranker_url`.")


class LearningSettings(SettingsGroup):
    """The settings of extraction."""

    learn: Literal["auto", "llm", "selector", "rules", "off"] = setting(
        "auto",
        "How memories are extracted from turns: by the LLM, by the built-in selector, not at all "
        "(off), or auto: by the LLM if one is configured, else by the selector. `rules` is an old "
        "name of `selector`.",
    )
    learn_every: int = setting(1, "Learn after this many new exchanges: a user turn and its answer.", ge=1, le=1000)
    learn_wait_s: float = setting(
        1.0, "Turns within this time of each other are learned from in one LLM call.", ge=0, le=3600
    )
    learn_drift: float = setting(
        0.0,
        "Learn when the topic changes: the cosine of a user turn to each of the three before it is below this; 0 for"
        " never.",
        ge=0,
        le=1,
    )
    learn_overlap: int = setting(4, "Number of earlier turns that are included as context.", ge=0, le=100)
    learn_mode: str = setting("chat", "What the LLM extracts from: chat, document, task or profile.")
    learn_level: Literal["natural", "session"] = setting(
        "natural", "Where extracted memories are stored: in the project or user, or in the session until promoted."
    )
    default_importance: float = setting(
        0.5, "Importance of memories that are added or extracted by the LLM without one.", ge=0, le=1
    )
    learn_min_importance: float = setting(0.2, "Minimum importance of an extracted memory.", ge=0, le=1)
    learn_min_confidence: float = setting(0.4, "Minimum confidence of an extracted memory.", ge=0, le=1)
    learn_user_only: bool = setting(
        False, "Extract only the user's own statements, not those of an assistant or of quoted text."
    )
    learn_ask_threshold: float = setting(
        0.06,
        "Minimum probability, by the built-in selector, that a turn states something to remember; the"
        " LLM is not called for others. 0 calls it for all turns. In the modes chat and profile only.",
        ge=0,
        le=1,
    )
    merge_text_similarity: float = setting(
        1.0, "Merge two memories if their Levenshtein similarity is above this; 1 for never.", ge=0, le=1
    )
    merge_vector_similarity: float = setting(
        1.0, "Merge two memories if the cosine of their vectors is above this; 1 for never.", ge=0, le=1
    )
    redact_turns: bool = setting(True, "Redact passwords, keys and card numbers in turns.")
    redact_memories: bool = setting(True, "Redact them in memories that are added, changed, reviewed or imported.")


class SessionSettings(SettingsGroup):
    """The settings of sessions: when they are compressed and summarised, and the memories made at their end."""

    session_idle_s: float = setting(1800.0, "A session ends after this time without a turn.", gt=0, le=31_536_000)
    compress_every: int = setting(
        20, "Compress older turns to an episode after this many new ones; 0 for never.", ge=0, le=10_000
    )
    compress_keep: int = setting(10, "Number of latest turns that are never compressed.", ge=0, le=10_000)
    compress_without_llm: bool = setting(
        False, "Whether episodes are also made without an LLM, from the turns' own text."
    )
    summary_every: int = setting(
        0, "Update a conversation's summary after this many turns; 0 for never.", ge=0, le=10_000
    )
    store_invocations: bool = setting(
        False, "Store the request and the result of each exchange with the conversation."
    )
    session_episode: bool = setting(True, "Store an episode when a session ends.")
    task_episodes: bool = setting(
        False, "Let the LLM describe the task of an episode: goal, steps, outcome, lessons."
    )
    promote: bool = setting(True, "Promote important memories of a session to later sessions when it ends.")
    promote_min_importance: float = setting(0.6, "Minimum importance of a promoted memory.", ge=0, le=1)


class QuotaSettings(SettingsGroup):
    """The maximum numbers of memories."""

    quota_user: int = setting(0, "Maximum number of memories of a user, without summaries; 0 for no limit.", ge=0)
    quota_project: int = setting(0, "Maximum number of memories of a project; 0 for no limit.", ge=0)
    quota_session: int = setting(0, "Maximum number of memories of a session; 0 for no limit.", ge=0)
    quota_order: Literal["weakest", "importance", "oldest"] = setting(
        "weakest",
        "Which memories a quota forgets first: the weakest by importance, recency and use, but no new ones; the least"
        " important, new or not, so that none displaces a more important one; or the oldest.",
    )
    quota_turns: bool = setting(False, "Whether turns count as memories in a quota, and are forgotten as well.")


class MaintenanceSettings(QuotaSettings):
    """The settings of maintenance and jobs."""

    prune_days: float = setting(
        90.0, "Pruning considers memories that were not used for this many days.", ge=1, le=36_500
    )
    nightly_maintenance: str = setting(
        "", "Nightly maintenance: any of prune, consolidate and reflect, separated by commas."
    )
    forget_days: float = setting(30.0, "Forgotten memories can be restored for this many days.", ge=1, le=36_500)
    max_waiting_jobs: int = setting(1000, "Reject new turns of a user while this many of their jobs are due.", ge=1)
    job_lease_s: float = setting(30.0, "A job of a worker that is gone is taken over after this time.", gt=0, le=3600)
    job_tries: int = setting(8, "Number of tries before a job is dead.", ge=1, le=100)
    worker: bool = setting(
        True, "Whether the server, and programs that call remember, run jobs; otherwise only workers do."
    )
    worker_jobs: int = setting(4, "Number of jobs that a worker runs concurrently.", ge=1, le=256)


class IndexSettings(SettingsGroup):
    """The settings of vector indexes."""

    index: Literal["auto", "exact", "pgvector", "milvus", "chroma"] = setting(
        "auto",
        "The index for users with many memories: exact (in memory), pgvector, milvus or chroma "
        "(extras); auto is exact.",
    )
    index_exact_rows: int = setting(
        50_000, "Users with up to this many memories are searched exactly, in memory.", ge=0, le=10_000_000
    )
    index_timeout_s: float = setting(
        1.0, "Timeout of the index; the vectors in the ledger are searched instead then.", gt=0, le=60
    )
    milvus_address: str = setting(
        "",
        "Address of Milvus: a file (Milvus Lite), host:19530 or an http:// address of a server or "
        "cluster. Empty for a file in `home`.",
    )
    milvus_token: SecretStr = setting(SecretStr(""), "Token of Milvus, or user:password.")
    milvus_collection: str = setting(
        "agentic_memory",
        "Collection in Milvus, which no other ledger may use; a second model uses one with a suffix.",
        pattern="^[A-Za-z_][A-Za-z0-9_]{0,200}$",
    )
    milvus_m: int = setting(16, "HNSW: number of neighbours of a vector.", ge=2, le=2048)
    milvus_ef_construction: int = setting(256, "HNSW: number of candidates when a vector is added.", ge=8, le=4096)
    milvus_ef: int = setting(64, "HNSW: minimum number of candidates in a search.", ge=8, le=4096)
    chroma_address: str = setting(
        "", "Address of Chroma: a folder, or the http:// address of a server. Empty for a folder in `home`."
    )
    chroma_token: SecretStr = setting(SecretStr(""), "Bearer token of the Chroma server.")
    chroma_collection: str = setting(
        "agentic_memory",
        "Collection in Chroma, which no other ledger may use; a second model uses one with a suffix.",
        pattern="^[A-Za-z0-9][A-Za-z0-9._-]{1,200}[A-Za-z0-9]$",
    )


class _Sources(dict[str, str]):
    """Where settings come from. Settings with the same values are equal wherever these come from."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Sources)

    __hash__ = None


class Settings(
    ServerSettings,
    McpServerSettings,
    AuthSettings,
    OperationSettings,
    AgentSettings,
    IndexSettings,
    MaintenanceSettings,
    SessionSettings,
    LearningSettings,
    ModelSettings,
    RecallSettings,
    StoreSettings,
):
    """The settings of Recollect; those of the preset are the defaults of all others."""

    # Where each setting that is not a default comes from, in words.
    _sources: _Sources = PrivateAttr(default_factory=_Sources)

    @property
    def sources(self) -> Mapping[str, str]:
        """The source of each setting that is not a default, as far as known."""
        return self._sources

    def with_sources(self, sources: Mapping[str, str]) -> Self:
        """Return the settings with the sources of their values."""
        copy = self.model_copy()
        copy._sources = _Sources(sources)
        return copy

    @model_validator(mode="before")
    @classmethod
    def _apply_preset(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        values = with_current_names(values)
        preset = values.get("preset")
        return {**read_preset(preset), **values} if preset and isinstance(preset, str) else values
