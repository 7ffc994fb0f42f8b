"""Items of the Responses API: ids, input items as they are stored, and output items while they are written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from recollect.http.responses.request import Json, ResponseParams
from recollect.model.ids import new_id


def as_object(value: object) -> dict[str, Any]:
    """Return a value that is an object, or an empty one: nobody guarantees the shape of an upstream's JSON."""
    return value if isinstance(value, dict) else {}


def as_objects(value: object) -> list[dict[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def as_text(value: object) -> str:
    return value if isinstance(value, str) else ""


class ResponseState:
    """A response as it is being answered; `is_finished` is set once its end is known."""

    response: Json
    is_finished = False

    @property
    def id(self) -> str:
        """Its id; empty as long as it has none."""
        return as_text(self.response.get("id"))

    def stop(self, status: str) -> None:
        """End it with a status, as far as it was answered."""
        raise NotImplementedError


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
    """Return a new id for an object of this kind; ids sort by time."""
    return f"{_PREFIXES.get(kind, 'item')}_{new_id().replace('-', '')}"


def with_id(item: Mapping[str, Any]) -> Json:
    """Return an input item as it is stored and listed: complete, with an id."""
    kind = item.get("type", "message")
    complete = {**item, "id": as_text(item.get("id")) or make_id(kind), "type": kind}
    if kind in ("message", "function_call", "function_call_output"):
        complete.setdefault("status", "completed")
    if kind == "message" and isinstance(text := complete["content"], str):
        is_answer = complete["role"] == "assistant"
        part: Json = {"type": "output_text", "annotations": []} if is_answer else {"type": "input_text"}
        complete["content"] = [{**part, "text": text}]
    return complete


# Fields of a request that its response repeats, with their defaults.
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

    def count(name: str, details: str = "") -> int:
        value = (as_object(chat.get(details)) if details else chat).get(name)
        return value if isinstance(value, int) else 0

    prompt, completion = count("prompt_tokens"), count("completion_tokens")
    return {
        "input_tokens": prompt,
        "input_tokens_details": {
            "cached_tokens": count("cached_tokens", "prompt_tokens_details"),
            "cache_write_tokens": count("cache_write_tokens", "prompt_tokens_details"),
        },
        "output_tokens": completion,
        "output_tokens_details": {"reasoning_tokens": count("reasoning_tokens", "completion_tokens_details")},
        "total_tokens": count("total_tokens") or prompt + completion,
    }


def output_text(response: Mapping[str, Any]) -> str:
    return "".join(
        as_text(part.get("text"))
        for item in as_objects(response.get("output"))
        if item.get("type") == "message"
        for part in as_objects(item.get("content"))
    )


class OutputItem:
    """An item that is being written; its methods return the events to send, and `item` is complete after `close`."""

    def __init__(self, at: int, kind: str, **fields: Any) -> None:
        self.item: Json = {"id": make_id(kind), "type": kind, **fields}
        self._at = at
        self._texts: list[str] = []

    def begin(self) -> list[Json]:
        return [{"type": "response.output_item.added", "output_index": self._at, "item": dict(self.item)}]

    def close(self, status: str) -> list[Json]:
        raise NotImplementedError

    def _done(self, **fields: Any) -> Json:
        self.item = {**self.item, **fields}
        return {"type": "response.output_item.done", "output_index": self._at, "item": self.item}

    def _event(self, kind: str, **fields: Any) -> Json:
        return {"type": f"response.{kind}", "item_id": self.item["id"], "output_index": self._at, **fields}


class ReasoningItem(OutputItem):
    """The model's reasoning, sent as a summary."""

    def __init__(self, at: int) -> None:
        super().__init__(at, "reasoning", summary=[])

    def begin(self) -> list[Json]:
        return [*super().begin(), self._part_event("part.added", part={"type": "summary_text", "text": ""})]

    def add(self, text: str) -> list[Json]:
        self._texts.append(text)
        return [self._part_event("text.delta", delta=text)]

    def close(self, status: str) -> list[Json]:
        text = "".join(self._texts)
        part = {"type": "summary_text", "text": text}
        events = [self._part_event("text.done", text=text), self._part_event("part.done", part=part)]
        return [*events, self._done(summary=[part])]

    def _part_event(self, kind: str, **fields: Any) -> Json:
        return self._event(f"reasoning_summary_{kind}", summary_index=0, **fields)


class MessageItem(OutputItem):
    """A message to the user: parts of text and refusals."""

    def __init__(self, at: int) -> None:
        super().__init__(at, "message", role="assistant", status="in_progress", content=[])
        self._parts: list[Json] = []
        self._annotations: list[Json] = []
        self._logprobs: list[Json] = []
        # The type of the part that is being written, if there is one.
        self._kind = ""

    def add(self, text: str, *, logprobs: Sequence[Json] = ()) -> list[Json]:
        events = self._begin_part("output_text")
        self._texts.append(text)
        self._logprobs += logprobs
        delta = self._part_event("output_text.delta", delta=text, logprobs=list(logprobs))
        return [*events, delta] if text else events

    def refuse(self, text: str) -> list[Json]:
        events = self._begin_part("refusal")
        self._texts.append(text)
        return [*events, self._part_event("refusal.delta", delta=text)]

    def cite(self, annotations: Sequence[Json]) -> list[Json]:
        events = self._begin_part("output_text")
        for each in annotations:
            kind = as_text(each.get("type"))
            inner = as_object(each.get(kind))
            note = {"type": kind, **inner} if inner else each
            at = len(self._annotations)
            events.append(self._part_event("output_text.annotation.added", annotation_index=at, annotation=note))
            self._annotations.append(note)
        return events

    def close(self, status: str) -> list[Json]:
        return [*self._close_part(), self._done(status=status, content=self._parts)]

    def _begin_part(self, kind: str) -> list[Json]:
        if kind == self._kind:
            return []
        events = self._close_part()
        self._kind = kind
        return [*events, self._part_event("content_part.added", part=self._part(""))]

    def _close_part(self) -> list[Json]:
        if not self._kind:
            return []
        text = "".join(self._texts)
        part = self._part(text)
        if self._kind == "refusal":
            done = self._part_event("refusal.done", refusal=text)
        else:
            done = self._part_event("output_text.done", text=text, logprobs=part["logprobs"])
        events = [done, self._part_event("content_part.done", part=part)]
        self._parts.append(part)
        self._texts, self._annotations, self._logprobs, self._kind = [], [], [], ""
        return events

    def _part(self, text: str) -> Json:
        if self._kind == "refusal":
            return {"type": "refusal", "refusal": text}
        notes, logprobs = list(self._annotations), list(self._logprobs)
        return {"type": "output_text", "text": text, "annotations": notes, "logprobs": logprobs}

    def _part_event(self, kind: str, **fields: Any) -> Json:
        return self._event(kind, content_index=len(self._parts), **fields)


class CallItem(OutputItem):
    """A call of a function, or of a custom tool, which takes free text."""

    def __init__(self, at: int, first: Mapping[str, Any]) -> None:
        is_custom = "custom" in first
        self._index = first.get("index")
        self._input = "input" if is_custom else "arguments"
        self._events = "custom_tool_call_input" if is_custom else "function_call_arguments"
        fields = {
            "status": "in_progress",
            "call_id": as_text(first.get("id")) or make_id("call"),
            "name": as_text(_call_payload(first).get("name")),
            self._input: "",
        }
        super().__init__(at, "custom_tool_call" if is_custom else "function_call", **fields)

    def is_continued_by(self, call: Mapping[str, Any], *, last: bool) -> bool:
        """Return whether a delta belongs to this call; some upstreams leave out the index or use one for all."""
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
        return [self._event(f"{self._events}.delta", delta=text)]

    def close(self, status: str) -> list[Json]:
        value = {self._input: "".join(self._texts)}
        named = {"name": self.item["name"]} if self._input == "arguments" else {}
        return [self._event(f"{self._events}.done", **named, **value), self._done(status=status, **value)]


def _call_payload(call: Mapping[str, Any]) -> Mapping[str, Any]:
    return as_object(call.get("custom" if "custom" in call else "function"))
