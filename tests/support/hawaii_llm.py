"""A scripted model for tests with real clients: it answers from the request alone."""

from __future__ import annotations

from typing import Any

from recollect.testing.llm_replies import ScriptedReply, ToolCall, texts
from recollect.testing.scripted_llm import RecordedRequest
from tests.support.llm_faults import http_error
from tests.support.proxy_server import BUDGET, QUESTION

RECALLED_ANSWER = "Your budget for the Hawaii trip is $10,000!"
UNKNOWN = "You have not told me."
PICTURE = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAA"
    "AABJRU5ErkJggg=="
)
REFUSED = {"error": {"message": "Slow down", "type": "requests", "param": None, "code": "rate_limit_exceeded"}}


def model(request: RecordedRequest) -> str | ScriptedReply:
    """Return the answer to the last user message, given the rest of the request."""
    messages = request.json["messages"] if isinstance(request.json, dict) else []
    dialogue = _last_words(messages)
    if QUESTION in dialogue:
        return RECALLED_ANSWER if "$10,000" in request.text else UNKNOWN
    if "weather" in dialogue:
        results = [each for each in messages if each["role"] == "tool"]
        call = ToolCall("weather", {"city": "Hilo"})
        return ScriptedReply(f"Hilo is {texts_of(results[-1])}") if results else ScriptedReply(None, [call])
    if "too fast" in dialogue:
        return ScriptedReply("", faults=[http_error(429, REFUSED, {"retry-after": "1", "x-request-id": "req-7"})])
    for word, answer in (("Count", "one two three"), ("picture", "A beach"), ("Ann", '{"name":"Ann","age":30}')):
        if word in dialogue:
            return answer
    return "Noted." if BUDGET in dialogue else "Aloha!"


def _last_words(messages: list[dict[str, Any]]) -> str:
    users = [each for each in messages if each["role"] == "user"]
    return texts_of(users[-1]) if users else ""


def texts_of(message: dict[str, Any]) -> str:
    return " ".join(texts(message.get("content")))
