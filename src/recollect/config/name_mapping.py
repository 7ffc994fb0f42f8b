"""The configuration blocks that presets accept in a settings file besides our own names.

Nested tables are flattened to dotted names, so that `memory: {milvus: {m: 16}}` is `memory.milvus.m`. Each preset has
a table of these names; a rule turns a value into settings of ours. A name that is not in the table is an error.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from recollect.errors import InvalidSettings

_log = logging.getLogger("recollect")
# Names that settings had before, which are still accepted.
FORMER_NAMES: Mapping[str, str] = {
    "agent_episodes_kept": "agent_store_episodes",
    "agent_working_most": "agent_working_max_tokens",
    "cache_from_ms": "cache_min_ms",
    "embedder_before_api_key": "previous_embedder_api_key",
    "embedder_before_url": "previous_embedder_url",
    "keep_invocations": "store_invocations",
    "llm_tokens_a_day": "llm_tokens_per_day",
    "llm_user_tokens_a_day": "llm_user_tokens_per_day",
    "most_waiting_jobs": "max_waiting_jobs",
    "promote_importance": "promote_min_importance",
    "recall_facts_importance": "recall_facts_min_importance",
    "recall_withhold": "recall_excluded_tags",
    "same_letters": "merge_text_similarity",
    "same_meaning": "merge_vector_similarity",
    "stop_within_s": "shutdown_timeout_s",
    "upkeep_nightly": "nightly_maintenance",
    "user_memories_most": "user_max_records",
}


def with_current_names(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values with former names of settings replaced; where both are present, the current one counts."""
    renamed = {FORMER_NAMES[name]: value for name, value in values.items() if name in FORMER_NAMES}
    for name in FORMER_NAMES.keys() & values.keys():
        _log.warning("the setting %s is called %s now", name, FORMER_NAMES[name])
    return renamed | {name: value for name, value in values.items() if name not in FORMER_NAMES}


# Returns settings for a value; raises ValueError with the problem, such as "must be a URL".
Rule = Callable[[Any], Mapping[str, Any]]


def rename(*settings: str) -> Rule:
    """Return a rule that gives the value to one or more of our settings."""
    return lambda value: dict.fromkeys(settings, value)


def choose(choices: Mapping[Any, Mapping[str, Any]]) -> Rule:
    """Return a rule for a few possible values, each with its settings."""

    def rule(value: Any) -> Mapping[str, Any]:
        for choice, settings in choices.items():
            # In Python 1 == True, which a reader of the file does not expect.
            if type(choice) is type(value) and choice == value:
                return settings
        allowed = " or ".join(str(choice).lower() for choice in choices)
        raise ValueError(f"must be {allowed}, got {value!r}")

    return rule


def _use_endpoint(value: Any) -> Mapping[str, Any]:
    """Set the endpoint of extraction; its address may end before or after /v1, and its model is qwen3."""
    if not isinstance(value, str) or "://" not in value:
        raise ValueError(f"must be a URL, got {value!r}")
    return {"llm_url": f"{value.rstrip('/').removesuffix('/v1')}/v1", "llm": "qwen3"}


def _use_chroma(folder: Any) -> Mapping[str, Any]:
    """Keep vectors in a Chroma folder from the first memory on; "" is the folder chroma in `home`."""
    return {"index": "chroma", "index_exact_rows": 0, "chroma_address": folder}


NAMES: Mapping[str, Mapping[str, Rule]] = {
    "semantic-router": {
        "memory.enabled": rename("chat_memory"),
        "memory.store_backend": choose(
            {"milvus": {"index": "milvus"}, "memory": {"index": "exact", "database": "memory:"}}
        ),
        "memory.milvus.address": rename("milvus_address"),
        "memory.milvus.collection": rename("milvus_collection"),
        "memory.milvus.m": rename("milvus_m"),
        "memory.milvus.ef_construction": rename("milvus_ef_construction"),
        "memory.milvus.ef": rename("milvus_ef"),
        "memory.default_retrieval_limit": rename("search_limit"),
        "memory.default_similarity_threshold": rename("search_min_score"),
        "memory.extraction.enabled": choose({True: {"learn": "auto"}, False: {"learn": "off"}}),
        "memory.extraction.batch_size": rename("learn_every"),
        "memory.extraction.llm_endpoint": _use_endpoint,
    },
    "session-service": {
        "rag.memory.enabled": rename("chat_memory"),
        "rag.memory.max-per-session": rename("quota_session"),
        "rag.memory.extraction-threshold": rename("learn_min_importance"),
        "rag.memory.context-limit": rename("search_limit"),
    },
    "markdown-proxy": {
        "openai_base_url": rename("upstream_url", "llm_url", "embedder_url"),
        "openai_api_key": rename("upstream_api_key", "llm_api_key", "embedder_api_key"),
        "embedding_base_url": rename("embedder_url"),
        "embedding_model": lambda name: {"embedder": f"openai:{name}"},
        "chroma": _use_chroma,
        "default_top_k": rename("search_limit"),
        "max_entries": rename("quota_project"),
        "mmr_lambda": rename("diversity"),
        "score_threshold": rename("search_min_score"),
        "enable_summarization": choose({True: {}, False: {"learn": "off", "summary_every": 0}}),
        "enable_git_versioning": rename("mirror_git"),
    },
    "react-mem": {
        "agent-mem.max-iterations": rename("agent_iterations"),
        "agent-mem.working-memory-threshold": rename("agent_working_tokens"),
        "agent-mem.fact-retrieval-top-k": rename("agent_facts"),
        "agent-mem.episode-retrieval-top-k": rename("agent_episodes"),
        "agent-mem.enable-auto-fact-extraction": rename("agent_learn"),
        "agent-mem.enable-episode-recording": choose(
            {
                True: {"agent_store_episodes": True},
                False: {"agent_store_episodes": False, "session_episode": False, "task_episodes": False},
            }
        ),
        "agent-mem.additional-context": rename("agent_context"),
    },
}


def translate(
    values: Mapping[str, Any], preset: str, source: str
) -> tuple[dict[str, Any], dict[str, Mapping[str, Any]]]:
    """Split values into our own settings and, by each name of the preset's blocks, the settings it stands for."""
    names = NAMES.get(preset, {})
    blocks = {_block(name) for name in names}
    own = {name: value for name, value in values.items() if _block(name) not in blocks}
    translated = {}
    for name, value in _flatten({name: value for name, value in values.items() if name not in own}):
        if name not in names:
            known = ", ".join(names)
            raise InvalidSettings(f"the preset {preset} has no setting {name!r} (from {source}); it has {known}")
        try:
            translated[name] = names[name](value)
        except ValueError as error:
            raise InvalidSettings(f"{name} {error} (from {source})") from None
    # In the order of the table: a special name such as embedding_base_url overrides a general one.
    return own, {name: translated[name] for name in names if name in translated}


def preset_of_block(name: str) -> str:
    """Return the preset that accepts a block of this name; empty if none does."""
    return next((preset for preset, names in NAMES.items() if _block(name) in map(_block, names)), "")


def _block(name: str) -> str:
    return name.partition(".")[0]


def _flatten(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{name}.")
        elif value is not None:
            yield name, value
