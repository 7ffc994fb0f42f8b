"""A model for agents of other frameworks: what it says and calls depends on nothing but the request it is given."""

from __future__ import annotations

import json
from typing import Any

from recollect.testing.llm_server import Recorded
from recollect.testing.llm_wire import Reply, ToolCall, texts

BUDGET = "The budget for the Hawaii trip is $10,000"
QUESTION = "How much can I spend in Hawaii?"
KNOWN = "You can spend $10,000."
UNKNOWN = "You have not told me."
PICTURE = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAA"
    "AABJRU5ErkJggg=="
)


def model(request: Recorded) -> str | Reply:
    """Stores what it is to remember, looks up what it is asked, corrects and forgets what it finds."""
    said, results = _last_words(request)
    if said.startswith("Remember: "):
        wanted = said.removeprefix("Remember: ")
        return f"Done. {results[-1]}" if results else _call("store_memory", content=wanted, kind="fact")
    if said.startswith(("Forget: ", "Correct: ")):
        return _changed(said, results)
    if said == QUESTION:
        if "$10,000" in _given(request):
            return KNOWN
        can_look = "recall_memories" in json.dumps(request.json.get("tools", []))
        return _call("recall_memories", query=said, limit=3) if can_look and not results else UNKNOWN
    return "A beach." if PICTURE in _given(request) else "Aloha!"


def _changed(said: str, results: list[str]) -> str | Reply:
    verb, _, rest = said.partition(": ")
    about, _, instead = rest.partition(" -> ")
    if not results:
        return _call("recall_memories", query=about, limit=1)
    if len(results) > 1:
        return f"Done. {results[-1]}"
    found = json.loads(results[0])[0]["id"]
    return (
        _call("forget_memory", memory_id=found)
        if verb == "Forget"
        else _call("correct_memory", memory_id=found, content=instead)
    )


def _call(name: str, **arguments: Any) -> Reply:
    return Reply(None, [ToolCall(name, arguments)])


def _given(request: Recorded) -> str:
    asked = request.json
    return json.dumps([asked.get("messages"), asked.get("input"), asked.get("instructions")])


def _last_words(request: Recorded) -> tuple[str, list[str]]:
    """What the user said last, and what the tools answered since."""
    items = request.json.get("messages", request.json.get("input"))
    if isinstance(items, str):
        return items, []
    at = max((at for at, each in enumerate(items) if each.get("role") == "user"), default=-1)
    said = " ".join(texts(items[at].get("content"))) if at >= 0 else ""
    after = items[at + 1 :]
    results = [each["content"] for each in after if each.get("role") == "tool"]
    return said, results + [each["output"] for each in after if each.get("type") == "function_call_output"]
