"""Server-sent events: read from bytes that come in any pieces, and written."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any


class SseReader:
    """Takes a stream's bytes as they come and gives the data of each event once it is whole."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        # Where to go on looking, so that a large event in small pieces is not searched again and again.
        self._searched = 0
        self._data: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        """The data of the events that are whole now."""
        complete = []
        self._buffer += chunk
        start = 0
        while (end := self._buffer.find(b"\n", max(self._searched, start))) >= 0:
            line = bytes(self._buffer[start:end]).removesuffix(b"\r")
            start = end + 1
            if line.startswith(b"data:"):
                self._data.append(line[5:].removeprefix(b" "))
            elif not line and self._data:
                complete.append(b"\n".join(self._data))
                self._data = []
        del self._buffer[:start]
        self._searched = len(self._buffer)
        return complete

    def end(self) -> list[bytes]:
        """The data of an event that was begun and not ended by a blank line, at the end of the stream."""
        return self.feed(b"\n\n") if self._buffer or self._data else []


def decode_object(data: bytes) -> dict[str, Any] | None:
    """The JSON object that the data of an event is; None where it is none."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def encode_events(events: Iterable[Mapping[str, Any]]) -> bytes:
    """Events as bytes, each with its type."""
    return b"".join(
        f"event: {event['type']}\ndata: {json.dumps(event, separators=(',', ':'))}\n\n".encode() for event in events
    )
