"""A memory with a scripted model for tests of remembering."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from recollect import AsyncMemory, Memory
from recollect.config.settings import Settings, load
from recollect.maintenance.worker import RetryPolicy
from recollect.model.memory import MemoryRecord
from recollect.service.service import Service
from recollect.testing.scripted_llm import RecordedRequest, ReplyRule, ScriptedLLM

ALEX = "alex"
Message = dict[str, Any]

TALK: dict[str, Any] = {"user_id": ALEX, "session_id": "monday"}
BIKE_MESSAGE = "My bike is a red Cargo bike."
BIKE = "User's bike is a red Cargo bike"

# What the prompts begin with: by these a script knows what it is asked for.
EXTRACT = "You maintain the long-term memory of a user. Compare the new lines"
COMPRESS = "Sum up a stretch of a conversation"
SUMMARY = "You keep the running summary of a conversation"
CONSOLIDATE = "Merge those that belong"
SESSION = "A conversation of a user has ended"

NOTHING = '{"memories": []}'


def settings(home: Path, llm: ScriptedLLM | None = None, **more: Any) -> Settings:
    """Return settings of a home; with an LLM, extraction uses it, without delay unless `learn_wait_s` is set."""
    # A loaded machine must not turn a slow answer into none.
    patient = {"recall_timeout_s": 60, "rewrite_timeout_s": 60, "rerank_timeout_s": 60, "memory_timeout_s": 30}
    options: dict[str, Any] = {"home": home, **patient, **more}
    if llm is not None:
        llm.default = NOTHING
        options = {"llm": "scripted", "llm_url": llm.base_url, "learn_wait_s": 0, "learn_ask_threshold": 0, **options}
    return load(options, environ={}).settings


def opened(home: Path, llm: ScriptedLLM | None = None, **more: Any) -> Memory:
    """Open a memory with these settings."""
    return Memory(settings=settings(home, llm, **more))


def opened_async(home: Path, llm: ScriptedLLM | None = None, **more: Any) -> AsyncMemory:
    """Open an AsyncMemory with these settings."""
    return AsyncMemory(settings=settings(home, llm, **more))


def user(*texts: str) -> list[Message]:
    return [{"role": "user", "content": text} for text in texts]


def exchange(text: str, answer: str = "Noted.", **more: Any) -> list[Message]:
    """Return a user message and its answer."""
    return [{"role": "user", "content": text, **more}, {"role": "assistant", "content": answer, **more}]


def say(memory: Memory, dialogue: str | list[Message], **scope: Any) -> Any:
    """Remember a message in the session monday and wait for extraction; return the result."""
    messages = exchange(dialogue) if isinstance(dialogue, str) else dialogue
    job = memory.remember(messages, **{**TALK, **scope}, wait=True).job
    assert job is not None
    assert job.state == "done", job.error
    return job.result


def claim(content: str, **fields: Any) -> dict[str, Any]:
    """Return an operation in the format of the extraction prompt."""
    return {
        "op": "add",
        "memory": None,
        "lines": [1],
        "content": content,
        "type": "semantic",
        "category": "fact",
        "key": None,
        "value": None,
        "importance": 0.8,
        "confidence": 0.9,
        "when": None,
        **fields,
    }


def learns(llm: ScriptedLLM, text: str, *operations: dict[str, Any]) -> ReplyRule:
    """Script the model: if a new line has these words, it answers with these operations."""
    return llm.when(asks_about(text)).reply_json({"operations": list(operations)})


def changes(llm: ScriptedLLM, text: str, op: str, memory: str, content: str, **fields: Any) -> ReplyRule:
    """Script the model: if a new line has these words, it updates or ends the listed memory with those."""

    def answer(request: RecordedRequest) -> str:
        visible = [json.loads(line) for line in _talk(request) if line.startswith('{"memory":')]
        number = next((row["memory"] for row in visible if memory in row["says"]), None)
        return json.dumps({"operations": [claim(content, op=op if number else "add", memory=number, **fields)]})

    return llm.when(asks_about(text)).reply(answer)


def asks_about(text: str) -> Callable[[RecordedRequest], bool]:
    """Return whether the new lines of a request contain these words; context lines do not count."""
    return lambda request: EXTRACT in request.text and any(text in line for line in new_turns(request))


def new_turns(request: RecordedRequest) -> list[str]:
    """Return the new lines of a request."""
    return [line for line in _talk(request) if line.startswith('{"line":')]


def read_along(request: RecordedRequest) -> list[str]:
    """Return the context lines of a request."""
    return [line for line in _talk(request) if line.startswith('{"before":')]


def _talk(request: RecordedRequest) -> list[str]:
    # After the fence: the prompt's own example comes before it.
    return request.text.partition("\n===")[2].splitlines()


def llm_requests(llm: ScriptedLLM, prompt: str = "") -> list[RecordedRequest]:
    """Return the requests to the model, of one prompt or all."""
    return [request for request in llm.calls("chat") if prompt in request.text]


def contents(records: Sequence[MemoryRecord]) -> list[str]:
    """Return the sorted texts of memories."""
    return sorted(record.content for record in records)


def facts(memory: Memory, **scope: Any) -> list[MemoryRecord]:
    """Return the texts of Alex's memories without turns, summaries and episodes."""
    results = memory.get_all(**{"user_id": ALEX, **scope})
    return [record for record in results if record.category not in ("summary", "episode")]


def wait_until(happened: Callable[[], object], timeout_s: float = 300.0) -> None:
    """Wait until the condition holds; raise AssertionError if it never does."""
    deadline = time.monotonic() + timeout_s
    while not happened():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


async def serve(memory: AsyncMemory, retry_policy: RetryPolicy) -> Service:
    """Return the service of a memory, with another retry policy for its worker."""
    service = await memory.service()
    service.jobs.worker.retry_policy = retry_policy
    return service
