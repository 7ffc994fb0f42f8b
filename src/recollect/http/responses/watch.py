"""A response that an upstream tells by itself, followed as it is relayed."""

from __future__ import annotations

from recollect.http.responses.asked import Json
from recollect.http.responses.loose import as_objects, as_text
from recollect.http.responses.sse import SseReader, decode_object

_FINAL_EVENTS = ("response.completed", "response.incomplete", "response.failed")


class PassthroughState:
    """Reads along: `response` is the response as it stands, `is_over` once the upstream said how it ended."""

    def __init__(self) -> None:
        self.response: Json = {}
        self.is_finished = False
        self._reader = SseReader()
        self._output: dict[int, Json] = {}
        self._number = -1

    @property
    def id(self) -> str:
        """The id of the response; empty as long as none was told."""
        id = self.response.get("id")
        return id if isinstance(id, str) else ""

    def feed(self, chunk: bytes) -> None:
        """Take what is being relayed."""
        for data in self._reader.feed(chunk):
            event = decode_object(data)
            if event is not None:
                self._apply_event(event)

    def _apply_event(self, event: Json) -> None:
        kind, response = event.get("type"), event.get("response")
        self._number = number if isinstance(number := event.get("sequence_number"), int) else self._number
        if isinstance(response, dict) and kind in ("response.created", "response.in_progress", *_FINAL_EVENTS):
            self.response = response
            self.is_finished = kind in _FINAL_EVENTS
            return
        at = event.get("output_index")
        if not isinstance(at, int):
            return
        if kind in ("response.output_item.added", "response.output_item.done"):
            item = event.get("item")
            if isinstance(item, dict):
                self._output[at] = item
        elif kind == "response.output_text.delta" and isinstance(event.get("delta"), str):
            self._add_text(at, event)

    def _add_text(self, at: int, event: Json) -> None:
        item = self._output.get(at, {"type": "message", "role": "assistant"})
        parts = as_objects(item.get("content"))
        if not parts or event.get("content_index") == len(parts):
            parts.append({"type": "output_text", "text": "", "annotations": []})
        parts[-1]["text"] = as_text(parts[-1].get("text")) + event["delta"]
        self._output[at] = {**item, "content": parts}

    def failure(self, message: str) -> Json:
        """The event that tells of a break in the middle."""
        event = {"type": "error", "code": "server_error", "message": message, "param": None}
        return {**event, "sequence_number": self._number + 1}

    def stop(self, status: str) -> None:
        """Leave it as it is: nobody listens any more, or nobody speaks."""
        if not self.is_finished and self.response:
            output = [
                {**item, "status": "incomplete"} if item.get("status") == "in_progress" else item
                for _, item in sorted(self._output.items())
            ]
            self.response = {**self.response, "status": status, "output": output}
            self.is_finished = True
