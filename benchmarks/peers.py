"""What the published pipelines of others ask of a model for the same exchanges, counted from their sources.

Only lengths are taken from there: how long each fixed prompt is, and what is put beside it. A token is four
characters, here as for our own prompts; schemas and tools that are sent along are left out on all sides. Their models
are taken to find exactly what ours is told to find, and never to need a second try.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.exchanges import Exchange

CHARS_A_TOKEN = 4

# mem0 1.0.11 (github.com/mem0ai/mem0, tag v1.0.11), mem0/configs/prompts.py and memory/main.py: add() asks once for
# facts (USER_MEMORY_EXTRACTION_PROMPT) and, if there are any, once what to do with them and the five nearest memories
# of each (DEFAULT_UPDATE_MEMORY_PROMPT with what get_update_memory_messages puts around it).
MEM0_1_EXTRACT = 4179
MEM0_1_UPDATE = 5310 + 1506 + 159
MEM0_1_NEAREST = 5
# mem0 2.0.18 (commit 8d5b786), the same files: add() asks once (ADDITIVE_EXTRACTION_PROMPT), with the last ten
# messages up to 300 characters each and the ten nearest memories; nothing is ever updated by it.
MEM0_2_EXTRACT = 33653 + 190
MEM0_2_NEAREST = 10
MEM0_2_MESSAGES = 10
MEM0_2_MESSAGE = 300
# agent-cli 0.102.4 (github.com/basnijholt/agent-cli, commit 04bb65b), agent_cli/memory/_prompt.py and _ingest.py: a
# turn asks once for facts of the user's words (FACT_SYSTEM_PROMPT, FACT_INSTRUCTIONS); if there are any, once what to
# do with them and the five nearest memories of each (UPDATE_MEMORY_PROMPT, unless nothing is known yet) and once for
# a new summary (SUMMARY_PROMPT) from the old one, which is at most 256 tokens. Summaries are on by default.
AGENT_CLI_EXTRACT = 870 + 102
AGENT_CLI_UPDATE = 3232 + 60
AGENT_CLI_SUMMARY = 264 + 40
AGENT_CLI_NEAREST = 5
AGENT_CLI_SUMMARY_MOST = 256 * CHARS_A_TOKEN


@dataclass(slots=True)
class Cost:
    """Calls and the characters they had a model read."""

    name: str
    calls: int = 0
    chars: int = 0

    @property
    def tokens(self) -> int:
        """About how many tokens those are."""
        return self.chars // CHARS_A_TOKEN

    def ask(self, *chars: int) -> None:
        """One more call, with so much to read."""
        self.calls += 1
        self.chars += sum(chars)


def mem0_1(report: Sequence[Exchange]) -> Cost:
    """mem0 1.x: facts, then what to do with them."""
    cost, existing = Cost("mem0 1.0.11"), list[str]()
    for each in report:
        cost.ask(MEM0_1_EXTRACT, len("Input:\n"), _as_lines(each))
        if each.facts:
            near = _nearest(existing, MEM0_1_NEAREST * len(each.facts))
            cost.ask(MEM0_1_UPDATE, len(str(near)), len(str(list(each.facts))))
            existing += each.facts
    return cost


def mem0_2(report: Sequence[Exchange]) -> Cost:
    """mem0 2.x: one question with a long prompt."""
    cost, existing, content = Cost("mem0 2.0.18"), list[str](), list[str]()
    for each in report:
        near = _nearest(existing, MEM0_2_NEAREST)
        before = sum(min(len(text), MEM0_2_MESSAGE) + len("assistant: \n") for text in content[-MEM0_2_MESSAGES:])
        cost.ask(MEM0_2_EXTRACT, before, len(json.dumps(near)), _as_lines(each))
        existing += each.facts
        content += [each.message, each.answer]
    return cost


def agent_cli(report: Sequence[Exchange]) -> Cost:
    """agent-cli's memory proxy: facts, what to do with them, a new summary."""
    cost, existing = Cost("agent-cli 0.102.4"), list[str]()
    for each in report:
        cost.ask(AGENT_CLI_EXTRACT, len(each.message))
        if not each.facts:
            continue
        new = json.dumps(list(each.facts), indent=2)
        if existing:
            near = _nearest(existing, AGENT_CLI_NEAREST * len(each.facts))
            cost.ask(AGENT_CLI_UPDATE, len(json.dumps(near, indent=2)), len(new))
        cost.ask(AGENT_CLI_SUMMARY, min(sum(map(len, existing)), AGENT_CLI_SUMMARY_MOST), sum(map(len, each.facts)))
        existing += each.facts
    return cost


def _as_lines(each: Exchange) -> int:
    return sum(len(f"{message['role']}: {message['content']}\n") for message in each.messages)


def _nearest(existing: Sequence[str], most: int) -> list[dict[str, str]]:
    """As many memories as it reads; which ones does not matter for how long they are."""
    return [{"id": str(at), "text": text} for at, text in enumerate(existing[-most:])]
