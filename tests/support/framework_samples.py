"""A scripted model for agents of other frameworks; its reply depends on the request only."""

from __future__ import annotations

import json
from typing import Any

from recollect.testing.llm_replies import ScriptedReply, ToolCall, texts
from recollect.testing.scripted_llm import RecordedRequest

BUDGET = "The budget for the Hawaii trip is $10,000"
QUESTION = "How much can I spend in Hawaii?"
RECALLED_ANSWER = "You can spend $10,000."
UNKNOWN = "You have not told me."
PICTURE = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAA"
    "AABJRU5ErkJggg=="
)


def model(request: RecordedRequest) -> str | ScriptedReply:
    """Reply to a request: store, look up, correct or forget as the user says."""
    text, results = _last_words(request)
    if text.startswith("Remember: "):
        expected = text.removeprefix("Remember: ")
        return f"Done. {results[-1]}" if results else _call("store_memory", content=expected, kind="fact")
    if text.startswith(("Forget: ", "Correct: ")):
        return _changed(text, results)
    if text == QUESTION:
        if "$10,000" in _request_text(request):
            return RECALLED_ANSWER
        can_look = "recall_memories" in json.dumps(request.json.get("tools", []))
        return _call("recall_memories", query=text, limit=3) if can_look and not results else UNKNOWN
    return "A beach." if PICTURE in _request_text(request) else "Aloha!"


def _changed(text: str, results: list[str]) -> str | ScriptedReply:
    verb, _, rest = text.partition(": ")
    about, _, instead = rest.partition(" -> ")
    if not results:
        return _call("recall_memories", query=about, limit=1)
    if len(results) > 1:
        return f"Done. {results[-1]}"
    matches = json.loads(results[0])[0]["id"]
    return (
        _call("forget_memory", memory_id=matches)
        if verb == "Forget"
        else _call("correct_memory", memory_id=matches, content=instead)
    )


def _call(name: str, **arguments: Any) -> ScriptedReply:
    return ScriptedReply(None, [ToolCall(name, arguments)])


def _request_text(request: RecordedRequest) -> str:
    query = request.json
    return json.dumps([query.get("messages"), query.get("input"), query.get("instructions")])


def _last_words(request: RecordedRequest) -> tuple[str, list[str]]:
    """Return the last message of the user, and the tool results since."""
    items = request.json.get("messages", request.json.get("input"))
    if isinstance(items, str):
        return items, []
    at = max((at for at, each in enumerate(items) if each.get("role") == "user"), default=-1)
    text = " ".join(texts(items[at].get("content"))) if at >= 0 else ""
    after = items[at + 1 :]
    results = [each["content"] for each in after if each.get("role") == "tool"]
    return text, results + [each["output"] for each in after if each.get("type") == "function_call_output"]
