"""The configuration of an agent: limits, memory, and how it calls tools."""

from __future__ import annotations

from dataclasses import field
from typing import Literal, TypeAlias

from recollect.agent.tools.memory_tools import MemoryLimits
from recollect.agent.working_memory import WorkingMemoryLimits
from recollect.config.settings import Settings
from recollect.frozen_dataclass import frozen_dataclass
from recollect.text.time_expressions import TimeWords

# By the endpoint, as text, as JSON with a schema, or by the endpoint until it refuses.
ToolCalls: TypeAlias = Literal["auto", "native", "text", "schema"]


@frozen_dataclass(kw_only=True)
class AgentLimits:
    """The limits of one run; 0 tokens is no limit."""

    iterations: int = 10
    time_s: float = 120.0
    tokens: int = 100_000
    tool_s: float = 30.0
    answer_tokens: int = 2048
    # Per reply of the model; further calls are refused.
    calls: int = 8
    observed_chars: int = 100_000


@frozen_dataclass(kw_only=True)
class AgentConfig:
    """The configuration of all runs of an agent."""

    limits: AgentLimits = field(default_factory=AgentLimits)
    working_memory: WorkingMemoryLimits = field(default_factory=WorkingMemoryLimits)
    tool_calls: ToolCalls = "auto"
    context: str = ""
    facts: int = 5
    episodes: int = 3
    min_score: float = 0.0
    memory_tokens: int = 2048
    memory_tools: MemoryLimits | None = field(default_factory=MemoryLimits)
    learns: bool = True
    records: bool = True
    recall_s: float = 5.0
    time_words: TimeWords = "prefer"
    withheld: frozenset[str] = frozenset()


def load_agent_config(settings: Settings) -> AgentConfig:
    limits = ("iterations", "time_s", "tokens", "tool_s", "answer_tokens")
    return AgentConfig(
        limits=AgentLimits(**{name: getattr(settings, f"agent_{name}") for name in limits}),
        working_memory=_working_memory_limits(settings),
        tool_calls=settings.agent_tool_calls,
        context=settings.agent_context,
        facts=settings.agent_facts,
        episodes=settings.agent_episodes,
        min_score=settings.search_min_score,
        memory_tokens=settings.context_tokens,
        memory_tools=MemoryLimits(facts=settings.agent_facts or 1, episodes=settings.agent_episodes or 1)
        if settings.agent_memory_tools
        else None,
        learns=settings.agent_learn,
        records=settings.agent_store_episodes,
        recall_s=settings.recall_timeout_s,
        time_words=settings.time_words,
        withheld=settings.excluded_tags,
    )


def _working_memory_limits(settings: Settings) -> WorkingMemoryLimits:
    """Return the limits; for a local model at most half of its context window."""
    half = settings.llm_context_tokens // 2
    is_local = (settings.agent_llm or settings.llm).startswith("local:")
    tokens = settings.agent_working_tokens
    max_tokens = max(settings.agent_working_max_tokens, tokens)
    return WorkingMemoryLimits(
        tokens=min(tokens, half) if is_local else tokens,
        keep_steps=settings.agent_keep_steps,
        max_tokens=min(max_tokens, half) if is_local else max_tokens,
    )
