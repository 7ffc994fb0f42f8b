"""A chat completion on its way becomes the typed events of a response, chunk by chunk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from recollect.http.responses.asked import Json
from recollect.http.responses.loose import a_text, an_object, objects
from recollect.http.responses.shape import usage_of
from recollect.http.responses.writing import Call, Message, Open, Reasoning

_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}


class Translation:
    """One response while it is answered: fed with chunks of chat completions, it gives events.

    `response` is the response as it stands; sequence numbers rise by one from 0.
    """

    def __init__(self, begun: Json) -> None:
        self.response = begun
        self.is_over = False
        self._number = 0
        self._open: list[Open] = []
        self._output_count = 0
        self._finish: str | None = None
        self._is_done = False

    @property
    def id(self) -> str:
        """The id of the response."""
        return str(self.response["id"])

    @property
    def count(self) -> int:
        """How many events there were: the number of the next one."""
        return self._number

    def begin(self) -> list[Json]:
        """The events before anything was answered."""
        kinds = ("response.created", "response.in_progress")
        return self._numbered({"type": kind, "response": dict(self.response)} for kind in kinds)

    def take(self, chunk: Mapping[str, Any]) -> list[Json]:
        """The events that a chunk comes to; one that tells of an error ends the response."""
        if self.is_over:
            return []
        if error := chunk.get("error"):
            return self.fail(*_told(error))
        if isinstance(chunk.get("usage"), dict):
            self.response["usage"] = usage_of(chunk["usage"])
        for name in ("model", "service_tier"):
            if isinstance(chunk.get(name), str):
                self.response[name] = chunk[name]
        events: list[Json] = []
        for choice in objects(chunk.get("choices")):
            # Only the first of several choices: a response has one answer.
            if not choice.get("index"):
                events += self._taken(choice)
        return self._numbered(events)

    def _taken(self, choice: Mapping[str, Any]) -> list[Json]:
        said = an_object(choice.get("delta")) or an_object(choice.get("message"))
        events: list[Json] = []
        if thought := a_text(said.get("reasoning_content")) or a_text(said.get("reasoning")):
            events += self._current(Reasoning, events).add(thought)
        if text := a_text(said.get("content")):
            events += self._current(Message, events).add(text, logprobs=_logprobs(choice))
        if refusal := a_text(said.get("refusal")):
            events += self._current(Message, events).refuse(refusal)
        if cited := objects(said.get("annotations")):
            events += self._current(Message, events).cite(cited)
        for call in objects(said.get("tool_calls")):
            events += self._called(call, events)
        if isinstance(old := said.get("function_call"), dict):
            events += self._called({"index": 0, "function": old}, events)
        self._finish = a_text(choice.get("finish_reason")) or self._finish
        return events

    def _current(self, kind: type[Any], events: list[Json]) -> Any:
        """The open item of a kind; another kind is closed first, and a new one begun."""
        if not self._open or type(self._open[-1]) is not kind:
            events += self._close_all()
            events += self._begin_item(kind(self._output_count))
        return self._open[-1]

    def _called(self, call: Mapping[str, Any], events: list[Json]) -> list[Json]:
        calls = [each for each in self._open if isinstance(each, Call)]
        known = next((each for each in reversed(calls) if each.is_meant_by(call, last=each is calls[-1])), None)
        if known is None:
            if not calls:
                events += self._close_all()
            known = Call(self._output_count, call)
            events += self._begin_item(known)
        return known.add(call)

    def _begin_item(self, item: Open) -> list[Json]:
        self._output_count += 1
        self._open.append(item)
        return item.begin()

    def _close_all(self, status: str = "completed") -> list[Json]:
        events: list[Json] = []
        for item in self._open:
            events += item.close(status)
            self.response["output"] = [*self.response["output"], item.item]
        self._open = []
        return events

    def done(self) -> None:
        """Note that the upstream said it is done."""
        self._is_done = True

    def end(self, *, at: int) -> list[Json]:
        """The last events, now that the upstream has no more to say."""
        if self.is_over:
            return []
        if self._finish is None and not self._is_done:
            return self.fail("the upstream broke off in the middle of its answer", "server_error")
        reason = _INCOMPLETE.get(self._finish or "")
        status = "incomplete" if reason else "completed"
        events: list[Json] = []
        if not self._output_count:
            events += self._current(Message, events).add("")
        events += self._close_all(status)
        self.response |= {"status": status, "incomplete_details": {"reason": reason} if reason else None}
        if not reason:
            self.response["completed_at"] = at
        return self._finished(events)

    def fail(self, message: str, code: str) -> list[Json]:
        """The last events, now that something went wrong."""
        events = self._close_all("incomplete")
        known = code if code in ("rate_limit_exceeded", "invalid_prompt") else "server_error"
        self.response |= {"status": "failed", "error": {"code": known, "message": message}}
        events.append({"type": "error", "code": code, "message": message, "param": None})
        return self._finished(events)

    def stop(self, status: str) -> None:
        """Leave it as it is: nobody listens any more."""
        if not self.is_over:
            self._close_all("incomplete")
            self.response["status"] = status
            self.is_over = True

    def _finished(self, events: Sequence[Json]) -> list[Json]:
        self.is_over = True
        last = {"type": f"response.{self.response['status']}", "response": dict(self.response)}
        return self._numbered([*events, last])

    def _numbered(self, events: Any) -> list[Json]:
        numbered = []
        for event in events:
            numbered.append({**event, "sequence_number": self._number})
            self._number += 1
        return numbered


def _logprobs(choice: Mapping[str, Any]) -> list[Json]:
    return objects(an_object(choice.get("logprobs")).get("content"))


def _told(error: object) -> tuple[str, str]:
    if not isinstance(error, dict):
        return str(error), "server_error"
    code = error.get("code") or error.get("type")
    return str(error.get("message") or "the upstream failed"), code if isinstance(code, str) else "server_error"
