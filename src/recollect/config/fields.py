"""The settings of what finds the nearest vectors: declared once, typed, bounded."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr

from recollect.config.server_fields import AgentSettings, AuthSettings, OperationSettings, ServerSettings, env_aliases


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


class MemorySettings(BaseModel):
    """How memories are kept, learned and found."""

    home: Annotated[Path, Field(description="Folder of the ledger and of config.toml.")] = Path("~/.recollect")
    preset: Annotated[str, Field(description="Named defaults; see below. Empty for Recollect's own.")] = ""
    database: Annotated[
        str,
        Field(description="Where the ledger is: empty for a file in `home`, a postgresql:// address, or memory:."),
    ] = ""
    postgres_connections: Annotated[
        int,
        Field(
            ge=3,
            le=1000,
            description="Most connections a process keeps to PostgreSQL; all but two may be writing at once.",
        ),
    ] = 10

    embedder: Annotated[
        str,
        Field(
            description="What makes vectors: bundled, openai:MODEL, model2vec:NAME, "
            "sentence-transformers:NAME, fastembed:NAME or neural (an extra)."
        ),
    ] = "bundled"
    embedder_url: Annotated[
        str,
        Field(
            description="Base URL of an OpenAI-compatible endpoint.",
            json_schema_extra=env_aliases("EMBEDDING_BASE_URL", "OPENAI_BASE_URL"),
        ),
    ] = "https://api.openai.com/v1"
    embedder_api_key: Annotated[
        SecretStr, Field(description="Key for that endpoint.", json_schema_extra=env_aliases("OPENAI_API_KEY"))
    ] = SecretStr("")
    embedder_dimensions: Annotated[
        int, Field(ge=0, le=16_384, description="Ask the endpoint for vectors of this size; 0 for its own.")
    ] = 0
    embedder_timeout_s: Annotated[float, Field(gt=0, le=600, description="Longest wait for vectors.")] = 30.0
    embedder_before_url: Annotated[
        str, Field(description="While the embedder is changed: base URL of the one before; empty for the one it had.")
    ] = ""
    embedder_before_api_key: Annotated[
        SecretStr,
        Field(description="Its key; if empty, that of `embedder`, where the URL is the same."),
    ] = SecretStr("")
    embedding_cache_mb: Annotated[
        int, Field(ge=0, le=65_536, description="Memory for vectors of texts seen lately; 0 for none.")
    ] = 32

    index_memory_mb: Annotated[
        int, Field(ge=16, le=1_048_576, description="Memory for users' vectors; the least used leave first.")
    ] = 1024
    search_limit: Annotated[int, Field(ge=1, le=1000, description="Hits of a search that names no limit.")] = 10
    search_min_score: Annotated[
        float, Field(ge=0, le=1, description="What is less relevant than this is left out, from 0 to 1.")
    ] = 0.15
    search_elbow: Annotated[
        bool, Field(description="Also cut a search off where the scores fall steeply after the first hits.")
    ] = False
    late_interaction: Annotated[
        bool,
        Field(
            description="Also compare questions with memories word piece by word piece, with a small bundled network. "
            "Better ranking for about 2 ms a search, 3 kB a memory, and 3 ms of background work for each write."
        ),
    ] = True
    fusion: Annotated[
        Literal["learned", "rrf", "weights"],
        Field(description="How signals become one score: the learned blend, reciprocal ranks, or plain weights."),
    ] = "learned"
    recency_weight: Annotated[float, Field(ge=0, le=1, description="How much being recent counts, from 0 to 1.")] = (
        0.2
    )
    recency_adds: Annotated[
        bool,
        Field(
            description="Whether being recent adds to the score by itself; else an old memory loses up to "
            "recency_weight of its relevance, and a recent one that hardly fits gains nothing."
        ),
    ] = False
    recency_days: Annotated[
        float, Field(gt=0, le=36_500, description="Age at which being recent has fallen to 37 %.")
    ] = 30.0
    importance_weight: Annotated[
        float, Field(ge=0, le=1, description="How much of the score is for being important, from 0 to 1.")
    ] = 0.0
    access_weight: Annotated[
        float, Field(ge=0, le=1, description="How much of the score is for having been recalled often, from 0 to 1.")
    ] = 0.0
    diversity: Annotated[
        float,
        Field(ge=0, le=1, description="Relevance against variety when hits are chosen: 1 is relevance alone."),
    ] = 0.7
    hits_per_source: Annotated[
        int, Field(ge=1, le=1000, description="Most hits that may stem from one and the same turn.")
    ] = 2

    recall_decide: Annotated[
        bool, Field(description="Let recall skip greetings, general knowledge and tool requests.")
    ] = True
    recall_timeout_s: Annotated[
        float, Field(gt=0, le=600, description="Longest a recall may take; then the chat goes on without memories.")
    ] = 5.0
    recall_facts: Annotated[
        int, Field(ge=0, le=1000, description="Most keyed facts that recall gives whatever the question.")
    ] = 20
    recall_facts_importance: Annotated[
        float, Field(ge=0, le=1, description="Least importance of the keyed facts that are always given.")
    ] = 0.5
    time_words: Annotated[
        Literal["prefer", "filter", "off"],
        Field(description='What "last March" in a question does: prefer what happened then, ask for it, or nothing.'),
    ] = "prefer"
    rewrite: Annotated[
        Literal["auto", "off", "terms", "llm", "hyde"],
        Field(
            description="How a vague question is completed: by terms of the last messages, by the LLM, by an answer "
            "the LLM imagines (hyde), or auto: terms first, the LLM where there is one and the question stays vague."
        ),
    ] = "auto"
    rewrite_timeout_s: Annotated[
        float, Field(gt=0, le=60, description="Longest wait for a rewrite; then the words are used as they are.")
    ] = 2.0
    context_tokens: Annotated[
        int, Field(ge=256, le=1_000_000, description="Most tokens of memories that recall puts into a prompt.")
    ] = 2048
    context_format: Annotated[
        Literal["recollect", "semantic-router", "react-mem", "session-service", "markdown-proxy", "three-tier"],
        Field(description="How memories are written into a prompt."),
    ] = "recollect"
    context_place: Annotated[
        Literal["before-question", "system", "question"],
        Field(
            description="Where they go: a message before the last user message, the system message, "
            "or the last user message itself."
        ),
    ] = "before-question"
    context_summary: Annotated[
        bool, Field(description="Whether the summary of the conversation so far goes into the prompt, too.")
    ] = False
    recall_turns: Annotated[
        bool, Field(description="Whether recall gives what was said beside what was learned from it.")
    ] = True
    recall_withhold: Annotated[
        str,
        Field(description="Tags, separated by commas: memories that carry one are never put into a prompt."),
    ] = ""

    llm: Annotated[
        str,
        Field(
            description="Model for rewriting questions and learning from chats: a name at llm_url, local:FILE.gguf "
            "or local:smollm2 (an extra); empty for none."
        ),
    ] = ""
    llm_url: Annotated[
        str,
        Field(
            description="Base URL of its OpenAI-compatible endpoint.",
            json_schema_extra=env_aliases("OPENAI_BASE_URL"),
        ),
    ] = "https://api.openai.com/v1"
    llm_api_key: Annotated[
        SecretStr, Field(description="Key for that endpoint.", json_schema_extra=env_aliases("OPENAI_API_KEY"))
    ] = SecretStr("")
    llm_timeout_s: Annotated[float, Field(gt=0, le=600, description="Longest wait for an answer of the LLM.")] = 60.0
    llm_user_tokens_a_day: Annotated[
        int,
        Field(
            ge=0,
            description="Most tokens of the LLM for each user a day; then it goes without. 0 for no limit. Unless it "
            "is set, learning with the upstream (learn_with_upstream) is limited to 100,000.",
        ),
    ] = 0
    llm_tokens_a_day: Annotated[
        int,
        Field(ge=0, description="Most tokens of the LLM for all users together a day. 0 for no limit."),
    ] = 0
    llm_size: Annotated[
        Literal["auto", "small", "large"],
        Field(
            description="How much is asked of the LLM: a small one answers a short question, and rules learn beside "
            "it. auto: by the parameters in its name or file, small up to 4 billion."
        ),
    ] = "auto"
    llm_context_tokens: Annotated[
        int, Field(ge=1024, le=131_072, description="How many tokens a local model reads and writes at once.")
    ] = 8192

    reranker: Annotated[
        str,
        Field(
            description="What looks at the best candidates again: none, neural (an extra), "
            "sentence-transformers:NAME, fastembed:NAME or http:MODEL."
        ),
    ] = "none"
    reranker_url: Annotated[
        str, Field(description="Address of an HTTP reranker, in the shape of Cohere, Jina or TEI.")
    ] = ""
    reranker_api_key: Annotated[SecretStr, Field(description="Key for it.")] = SecretStr("")
    rerank_candidates: Annotated[
        int, Field(ge=1, le=200, description="How many of the best candidates are reranked.")
    ] = 30
    rerank_timeout_s: Annotated[
        float, Field(gt=0, le=60, description="Longest wait for the reranker; then its opinion is done without.")
    ] = 2.0

    learn: Annotated[
        Literal["auto", "llm", "selector", "rules", "off"],
        Field(
            description="How memories are learned from what is said: with the LLM, with the built-in selector, not "
            "at all (off), or auto: with the LLM where one is configured, else with the selector. `rules` is an old "
            "name of `selector`."
        ),
    ] = "auto"
    learn_every: Annotated[
        int, Field(ge=1, le=1000, description="Learn once so many turns were said since the last time.")
    ] = 1
    learn_wait_s: Annotated[
        float,
        Field(
            ge=0, le=3600, description="Turns that come within this time of each other cost one question to the LLM."
        ),
    ] = 1.0
    learn_drift: Annotated[
        float,
        Field(
            ge=0, le=1, description="Learn when a user turn is less like the one before it than this; 0 for never."
        ),
    ] = 0.0
    learn_overlap: Annotated[
        int, Field(ge=0, le=100, description="Turns before the new ones that are read along, to understand these by.")
    ] = 4
    learn_mode: Annotated[str, Field(description="What the LLM listens for: chat, document, task or profile.")] = (
        "chat"
    )
    learn_level: Annotated[
        Literal["natural", "session"],
        Field(description="Where what is learned lives: with the project or user, or in its session until promoted."),
    ] = "natural"
    learn_min_importance: Annotated[
        float, Field(ge=0, le=1, description="What matters less than this is not learned.")
    ] = 0.2
    learn_min_confidence: Annotated[
        float, Field(ge=0, le=1, description="What is less sure than this is not learned.")
    ] = 0.4
    learn_ask_threshold: Annotated[
        float,
        Field(
            ge=0,
            le=1,
            description="Ask the LLM only about turns that state something worth remembering with at least this "
            "probability, by the built-in selector; 0 asks about all. In the modes chat and profile only.",
        ),
    ] = 0.06
    same_letters: Annotated[
        float,
        Field(ge=0, le=1, description="Merge two wordings whose Levenshtein similarity is above this; 1 for never."),
    ] = 1.0
    same_meaning: Annotated[
        float,
        Field(ge=0, le=1, description="Merge two wordings whose vectors have a cosine above this; 1 for never."),
    ] = 1.0
    session_idle_s: Annotated[
        float, Field(gt=0, le=31_536_000, description="A session ends after so long without a word.")
    ] = 1800.0
    compress_every: Annotated[
        int,
        Field(ge=0, le=10_000, description="Older turns become an episode whenever so many are new; 0 for no."),
    ] = 20
    compress_keep: Annotated[
        int, Field(ge=0, le=10_000, description="How many of the latest turns are never compressed.")
    ] = 10
    compress_without_llm: Annotated[
        bool,
        Field(description="Whether episodes are also made without an LLM, of what was said; turns are found anyway."),
    ] = False
    summary_every: Annotated[
        int,
        Field(
            ge=0, le=10_000, description="Bring a conversation's summary up to date after so many turns; 0 for no."
        ),
    ] = 0
    keep_invocations: Annotated[
        bool, Field(description="Keep with a conversation what was asked and what came of it, for each exchange.")
    ] = False
    session_episode: Annotated[bool, Field(description="Keep what happened in a session when it ends.")] = True
    task_episodes: Annotated[
        bool, Field(description="Have the LLM tell what was worked on: goal, steps, outcome, lessons.")
    ] = False
    promote: Annotated[
        bool, Field(description="Put what matters of a session where later sessions see it, when it ends.")
    ] = True
    promote_importance: Annotated[
        float, Field(ge=0, le=1, description="How much something must matter for that.")
    ] = 0.6
    quota_user: Annotated[
        int, Field(ge=0, description="Most memories of a user, turns and summaries apart; 0 for any number.")
    ] = 0
    quota_project: Annotated[int, Field(ge=0, description="Most memories of a project; 0 for any number.")] = 0
    quota_session: Annotated[int, Field(ge=0, description="Most memories of a session; 0 for any number.")] = 0
    quota_order: Annotated[
        Literal["weakest", "oldest"], Field(description="Which memories a quota forgets first.")
    ] = "weakest"
    prune_days: Annotated[
        float, Field(ge=1, le=36_500, description="Pruning looks at what nobody had to do with for so many days.")
    ] = 90.0
    upkeep_nightly: Annotated[
        str, Field(description="What is done by night: of prune, consolidate and reflect, separated by commas.")
    ] = ""
    forget_days: Annotated[
        float, Field(ge=1, le=36_500, description="What was forgotten can be brought back for so many days.")
    ] = 30.0
    most_waiting_jobs: Annotated[
        int, Field(ge=1, description="While so many jobs of a user are due, remember asks to try again later.")
    ] = 1000
    job_lease_s: Annotated[
        float, Field(gt=0, le=3600, description="A job whose worker is gone waits this long for another.")
    ] = 30.0
    job_tries: Annotated[int, Field(ge=1, le=100, description="How often a job is tried before it is given up.")] = 8
    worker: Annotated[
        bool,
        Field(description="Whether the server, and programs that remember, do the jobs; else only workers do."),
    ] = True
    worker_jobs: Annotated[int, Field(ge=1, le=256, description="How many jobs a worker does at a time.")] = 4
    redact_turns: Annotated[
        bool, Field(description="Keep passwords, keys and card numbers out of the log of what was said, too.")
    ] = True
    redact_memories: Annotated[
        bool, Field(description="Keep them out of what is added, changed, edited in review or imported, too.")
    ] = True


class Settings(ServerSettings, AuthSettings, OperationSettings, AgentSettings, IndexSettings, MemorySettings):
    """How Recollect is set up."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)
