"""The Response object: what it says before anything was answered, and its usage."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from recollect.http.responses.asked import Json, ResponseParams
from recollect.http.responses.loose import as_objects, as_text

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


def new_response(params: ResponseParams, *, id: str, created_at: int) -> Json:
    """A response that nothing was answered to yet."""
    fields = params.fields
    echoed = {name: default if fields.get(name) is None else fields[name] for name, default in _ECHOED.items()}
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
        "conversation": {"id": params.thread_id} if params.thread_id else None,
        "error": None,
        "incomplete_details": None,
        "model": params.model,
        "output": [],
        "store": params.store,
        "usage": None,
        **echoed,
    }


def to_response_usage(chat: Mapping[str, Any]) -> Json:
    """What was used, as the Responses API counts it."""
    prompt, completion = _number(chat, "prompt_tokens"), _number(chat, "completion_tokens")
    prompt_details, completion_details = chat.get("prompt_tokens_details"), chat.get("completion_tokens_details")
    return {
        "input_tokens": prompt,
        "input_tokens_details": {
            "cached_tokens": _number(prompt_details, "cached_tokens"),
            "cache_write_tokens": _number(prompt_details, "cache_write_tokens"),
        },
        "output_tokens": completion,
        "output_tokens_details": {"reasoning_tokens": _number(completion_details, "reasoning_tokens")},
        "total_tokens": _number(chat, "total_tokens") or prompt + completion,
    }


def _number(counts: object, name: str) -> int:
    value = counts.get(name) if isinstance(counts, Mapping) else None
    return value if isinstance(value, int) else 0


def output_text(response: Mapping[str, Any]) -> str:
    """All that was said to the user in a response."""
    return "".join(
        as_text(part.get("text"))
        for item in as_objects(response.get("output"))
        if item.get("type") == "message"
        for part in as_objects(item.get("content"))
    )
