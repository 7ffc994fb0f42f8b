"""JSON that nobody promised the shape of: what is there if it is what one looks for, else nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from recollect.http.responses.request import Json, ResponseParams
from recollect.model.ids import new_id


def as_object(value: object) -> dict[str, Any]:
    """The object, or an empty one."""
    return value if isinstance(value, dict) else {}


def as_objects(value: object) -> list[dict[str, Any]]:
    """The objects in a list; none in anything else."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def as_text(value: object) -> str:
    """The text, or an empty one."""
    return value if isinstance(value, str) else ""


_PREFIXES = {
    "message": "msg",
    "function_call": "fc",
    "function_call_output": "fco",
    "custom_tool_call": "ctc",
    "custom_tool_call_output": "ctco",
    "reasoning": "rs",
    "response": "resp",
    "conversation": "conv",
    "call": "call",
}


def make_id(kind: str) -> str:
    """A new id for something of this kind; ids sort by the time they were made."""
    return f"{_PREFIXES.get(kind, 'item')}_{new_id().replace('-', '')}"


def with_id(item: Mapping[str, Any]) -> dict[str, Any]:
    """An input item as it is kept and listed: whole, with an id."""
    kind = item.get("type", "message")
    id = item.get("id")
    complete = {**item, "id": id if isinstance(id, str) and id else make_id(kind), "type": kind}
    if kind == "message":
        complete.setdefault("status", "completed")
        if isinstance(complete["content"], str):
            complete["content"] = [_text_part(complete["role"], complete["content"])]
    elif kind in ("function_call", "function_call_output"):
        complete.setdefault("status", "completed")
    return complete


def _text_part(role: str, text: str) -> dict[str, Any]:
    if role == "assistant":
        return {"type": "output_text", "text": text, "annotations": []}
    return {"type": "input_text", "text": text}


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


class OutputItem(Protocol):
    """An item that more may be added to; closed, `item` is whole."""

    item: Json

    def begin(self) -> list[Json]: ...

    def close(self, status: str) -> list[Json]: ...


def _added_event(item: Json, at: int) -> Json:
    return {"type": "response.output_item.added", "output_index": at, "item": item}


def _done_event(item: Json, at: int) -> Json:
    return {"type": "response.output_item.done", "output_index": at, "item": item}


class ReasoningItem:
    """What the model thought, told as a summary."""

    def __init__(self, at: int) -> None:
        self.item: Json = {"id": make_id("reasoning"), "type": "reasoning", "summary": []}
        self._at = at
        self._where = {"item_id": self.item["id"], "output_index": at, "summary_index": 0}
        self._texts: list[str] = []

    def begin(self) -> list[Json]:
        part = {"type": "summary_text", "text": ""}
        return [
            _added_event(dict(self.item), self._at),
            {"type": "response.reasoning_summary_part.added", **self._where, "part": part},
        ]

    def add(self, text: str) -> list[Json]:
        self._texts.append(text)
        return [{"type": "response.reasoning_summary_text.delta", **self._where, "delta": text}]

    def close(self, status: str) -> list[Json]:
        text = "".join(self._texts)
        part = {"type": "summary_text", "text": text}
        self.item = {**self.item, "summary": [part]}
        return [
            {"type": "response.reasoning_summary_text.done", **self._where, "text": text},
            {"type": "response.reasoning_summary_part.done", **self._where, "part": part},
            _done_event(self.item, self._at),
        ]


class MessageItem:
    """What is said to the user: text, or a refusal, or one after the other."""

    def __init__(self, at: int) -> None:
        head = {"id": make_id("message"), "type": "message", "role": "assistant"}
        self.item: Json = {**head, "status": "in_progress", "content": []}
        self._at = at
        self._parts: list[Json] = []
        self._texts: list[str] = []
        self._annotations: list[Json] = []
        self._logprobs: list[Json] = []
        # Which of the two is being written.
        self._kind = ""

    def begin(self) -> list[Json]:
        return [_added_event(dict(self.item), self._at)]

    @property
    def _where(self) -> Json:
        return {"item_id": self.item["id"], "output_index": self._at, "content_index": len(self._parts)}

    def add(self, text: str, *, logprobs: Sequence[Json] = ()) -> list[Json]:
        events = self._begin_part("output_text")
        self._texts.append(text)
        self._logprobs += logprobs
        delta = {"delta": text, "logprobs": list(logprobs)}
        return [*events, {"type": "response.output_text.delta", **self._where, **delta}] if text else events

    def refuse(self, text: str) -> list[Json]:
        events = self._begin_part("refusal")
        self._texts.append(text)
        return [*events, {"type": "response.refusal.delta", **self._where, "delta": text}]

    def cite(self, cited: Sequence[Json]) -> list[Json]:
        events = self._begin_part("output_text")
        for each in cited:
            kind = as_text(each.get("type"))
            inner = as_object(each.get(kind))
            note = {"type": kind, **inner} if inner else each
            where = {**self._where, "annotation_index": len(self._annotations), "annotation": note}
            events.append({"type": "response.output_text.annotation.added", **where})
            self._annotations.append(note)
        return events

    def _begin_part(self, kind: str) -> list[Json]:
        if kind == self._kind:
            return []
        events = self._close_part()
        self._kind = kind
        part = {"type": kind, "refusal": ""} if kind == "refusal" else self._text_part("")
        return [*events, {"type": "response.content_part.added", **self._where, "part": part}]

    def _text_part(self, text: str) -> Json:
        return {
            "type": "output_text",
            "text": text,
            "annotations": list(self._annotations),
            "logprobs": list(self._logprobs),
        }

    def _close_part(self) -> list[Json]:
        if not self._kind:
            return []
        text, where = "".join(self._texts), self._where
        if self._kind == "refusal":
            part: Json = {"type": "refusal", "refusal": text}
            events = [{"type": "response.refusal.done", **where, "refusal": text}]
        else:
            part = self._text_part(text)
            events = [{"type": "response.output_text.done", **where, "text": text, "logprobs": part["logprobs"]}]
        self._parts.append(part)
        self._texts, self._annotations, self._logprobs, self._kind = [], [], [], ""
        return [*events, {"type": "response.content_part.done", **where, "part": part}]

    def close(self, status: str) -> list[Json]:
        events = self._close_part()
        self.item = {**self.item, "status": status, "content": self._parts}
        return [*events, _done_event(self.item, self._at)]


class CallItem:
    """A function, or a tool that takes free text, that the model wants called."""

    def __init__(self, at: int, first: Mapping[str, Any]) -> None:
        self._index = first.get("index")
        self._is_custom = "custom" in first
        payload = _call_payload(first)
        self._input = "input" if self._is_custom else "arguments"
        kind = "custom_tool_call" if self._is_custom else "function_call"
        self._events = "response.custom_tool_call_input" if self._is_custom else "response.function_call_arguments"
        call_id = as_text(first.get("id")) or make_id("call")
        self.item: Json = {"id": make_id(kind), "type": kind, "status": "in_progress", "call_id": call_id}
        self.item |= {"name": as_text(payload.get("name")), self._input: ""}
        self._at = at
        self._where = {"item_id": self.item["id"], "output_index": at}
        self._texts: list[str] = []

    def begin(self) -> list[Json]:
        return [_added_event(dict(self.item), self._at)]

    def is_continued_by(self, call: Mapping[str, Any], *, last: bool) -> bool:
        """Whether a delta goes on with this call; some upstreams leave out the index, or give all calls the same."""
        if id := as_text(call.get("id")):
            return bool(id == self.item["call_id"])
        if (index := call.get("index")) is not None:
            return bool(index == self._index)
        return last and not _call_payload(call).get("name")

    def add(self, call: Mapping[str, Any]) -> list[Json]:
        text = as_text(_call_payload(call).get(self._input))
        if not text:
            return []
        self._texts.append(text)
        return [{"type": f"{self._events}.delta", **self._where, "delta": text}]

    def close(self, status: str) -> list[Json]:
        text = "".join(self._texts)
        self.item = {**self.item, "status": status, self._input: text}
        named = {} if self._is_custom else {"name": self.item["name"]}
        return [
            {"type": f"{self._events}.done", **self._where, **named, self._input: text},
            _done_event(self.item, self._at),
        ]


def _call_payload(call: Mapping[str, Any]) -> Mapping[str, Any]:
    return as_object(call.get("custom" if "custom" in call else "function"))
