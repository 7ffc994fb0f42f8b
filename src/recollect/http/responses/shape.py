"""The Response object: what it says before anything was answered, and its usage."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from recollect.http.responses.asked import Asked, Json
from recollect.http.responses.loose import a_text, objects

# What is told of a request in its answer, and what is told where the request says nothing.
_ECHOED: Mapping[str, Any] = {
    "instructions": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "previous_response_id": None,
    "prompt_cache_key": None,
    "reasoning": {"effort": None, "summary": None},
    "safety_identifier": None,
    "service_tier": "default",
    "temperature": 1.0,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [],
    "top_logprobs": 0,
    "top_p": 1.0,
    "truncation": "disabled",
    "user": None,
}


def begun(asked: Asked, *, id: str, created_at: int) -> Json:
    """A response that nothing was answered to yet."""
    given = asked.fields
    echoed = {name: usual if given.get(name) is None else given[name] for name, usual in _ECHOED.items()}
    text = echoed["text"]
    if isinstance(text, dict) and not text.get("format"):
        echoed["text"] = {**text, "format": {"type": "text"}}
    return {
        "id": id,
        "object": "response",
        "created_at": created_at,
        "status": "in_progress",
        "background": False,
        "completed_at": None,
        "conversation": {"id": asked.thread_id} if asked.thread_id else None,
        "error": None,
        "incomplete_details": None,
        "model": asked.model,
        "output": [],
        "store": asked.store,
        "usage": None,
        **echoed,
    }


def usage_of(chat: Mapping[str, Any]) -> Json:
    """What was used, as the Responses API counts it."""
    prompt, completion = _number(chat, "prompt_tokens"), _number(chat, "completion_tokens")
    seen, made = chat.get("prompt_tokens_details"), chat.get("completion_tokens_details")
    return {
        "input_tokens": prompt,
        "input_tokens_details": {
            "cached_tokens": _number(seen, "cached_tokens"),
            "cache_write_tokens": _number(seen, "cache_write_tokens"),
        },
        "output_tokens": completion,
        "output_tokens_details": {"reasoning_tokens": _number(made, "reasoning_tokens")},
        "total_tokens": _number(chat, "total_tokens") or prompt + completion,
    }


def _number(held: object, name: str) -> int:
    value = held.get(name) if isinstance(held, Mapping) else None
    return value if isinstance(value, int) else 0


def text_of(response: Mapping[str, Any]) -> str:
    """All that was said to the user in a response."""
    return "".join(
        a_text(part.get("text"))
        for item in objects(response.get("output"))
        if item.get("type") == "message"
        for part in objects(item.get("content"))
    )
