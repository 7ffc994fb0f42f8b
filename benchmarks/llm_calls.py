"""Count the LLM calls that other products need for the same exchanges, from their published sources.

Only lengths are taken from the sources: of the fixed prompts, and of the texts inserted into them. A token is four
characters, as for our own prompts; schemas and tools are left out on all sides. Every LLM is assumed to extract the
same facts, without retries.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.corpus import Exchange

CHARS_A_TOKEN = 4

# mem0 1.0.11 (github.com/mem0ai/mem0, tag v1.0.11), mem0/configs/prompts.py and memory/main.py: add() extracts
# facts (USER_MEMORY_EXTRACTION_PROMPT) and, if there are any, decides about them and the five nearest memories of
# each (DEFAULT_UPDATE_MEMORY_PROMPT inside get_update_memory_messages).
MEM0_1_EXTRACT = 4179
MEM0_1_UPDATE = 5310 + 1506 + 159
MEM0_1_NEAREST = 5
# mem0 2.0.18 (commit 8d5b786), the same files: one call of add() (ADDITIVE_EXTRACTION_PROMPT) with the last
# ten messages up to 300 characters each and the ten nearest memories; it never updates a memory.
MEM0_2_EXTRACT = 33653 + 190
MEM0_2_NEAREST = 10
MEM0_2_MESSAGES = 10
MEM0_2_MESSAGE = 300
# agent-cli 0.102.4 (github.com/basnijholt/agent-cli, commit 04bb65b), agent_cli/memory/_prompt.py and _ingest.py: a
# turn extracts facts of the user's message (FACT_SYSTEM_PROMPT, FACT_INSTRUCTIONS); if there are any, it decides
# about them and the five nearest memories of each (UPDATE_MEMORY_PROMPT, unless there is no memory yet) and renews
# the summary (SUMMARY_PROMPT) of at most 256 tokens. Summaries are on by default.
AGENT_CLI_EXTRACT = 870 + 102
AGENT_CLI_UPDATE = 3232 + 60
AGENT_CLI_SUMMARY = 264 + 40
AGENT_CLI_NEAREST = 5
AGENT_CLI_SUMMARY_MAX = 256 * CHARS_A_TOKEN


@dataclass(slots=True)
class Cost:
    """Calls of an LLM, and the characters of their prompts."""

    name: str
    calls: int = 0
    chars: int = 0

    @property
    def tokens(self) -> int:
        """Return the approximate number of tokens."""
        return self.chars // CHARS_A_TOKEN

    def ask(self, *chars: int) -> None:
        """Count a call with prompt parts of these lengths."""
        self.calls += 1
        self.chars += sum(chars)


def mem0_1(exchanges: Sequence[Exchange]) -> Cost:
    """Count the calls of mem0 1.x: extract facts, then decide what to do with them."""
    cost, existing = Cost("mem0 1.0.11"), list[str]()
    for each in exchanges:
        cost.ask(MEM0_1_EXTRACT, len("Input:\n"), _as_lines(each))
        if each.facts:
            near = _nearest(existing, MEM0_1_NEAREST * len(each.facts))
            cost.ask(MEM0_1_UPDATE, len(str(near)), len(str(list(each.facts))))
            existing += each.facts
    return cost


def mem0_2(exchanges: Sequence[Exchange]) -> Cost:
    """Count the calls of mem0 2.x: one call with a long prompt."""
    cost, existing, content = Cost("mem0 2.0.18"), list[str](), list[str]()
    for each in exchanges:
        near = _nearest(existing, MEM0_2_NEAREST)
        before = sum(min(len(text), MEM0_2_MESSAGE) + len("assistant: \n") for text in content[-MEM0_2_MESSAGES:])
        cost.ask(MEM0_2_EXTRACT, before, len(json.dumps(near)), _as_lines(each))
        existing += each.facts
        content += [each.message, each.answer]
    return cost


def agent_cli(exchanges: Sequence[Exchange]) -> Cost:
    """Count the calls of agent-cli: extract facts, decide what to do with them, summarize."""
    cost, existing = Cost("agent-cli 0.102.4"), list[str]()
    for each in exchanges:
        cost.ask(AGENT_CLI_EXTRACT, len(each.message))
        if not each.facts:
            continue
        new = json.dumps(list(each.facts), indent=2)
        if existing:
            near = _nearest(existing, AGENT_CLI_NEAREST * len(each.facts))
            cost.ask(AGENT_CLI_UPDATE, len(json.dumps(near, indent=2)), len(new))
        cost.ask(AGENT_CLI_SUMMARY, min(sum(map(len, existing)), AGENT_CLI_SUMMARY_MAX), sum(map(len, each.facts)))
        existing += each.facts
    return cost


def _as_lines(each: Exchange) -> int:
    return sum(len(f"{message['role']}: {message['content']}\n") for message in each.messages)


def _nearest(existing: Sequence[str], count: int) -> list[dict[str, str]]:
    """Return as many memories as the prompt holds; only their length matters."""
    return [{"id": str(at), "text": text} for at, text in enumerate(existing[-count:])]
