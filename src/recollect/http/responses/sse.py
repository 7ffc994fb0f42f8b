"""Server-sent events: read from bytes that come in any pieces, and written."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any


class SseReader:
    """Takes a stream's bytes as they come and gives the data of each event once it is whole."""

    def __init__(self) -> None:
        self._rest = bytearray()
        # Where to go on looking, so that a large event in small pieces is not searched again and again.
        self._seen = 0
        self._data: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        """The data of the events that are whole now."""
        found = []
        self._rest += chunk
        start = 0
        while (end := self._rest.find(b"\n", max(self._seen, start))) >= 0:
            line = bytes(self._rest[start:end]).removesuffix(b"\r")
            start = end + 1
            if line.startswith(b"data:"):
                self._data.append(line[5:].removeprefix(b" "))
            elif not line and self._data:
                found.append(b"\n".join(self._data))
                self._data = []
        del self._rest[:start]
        self._seen = len(self._rest)
        return found

    def end(self) -> list[bytes]:
        """The data of an event that was begun and not ended by a blank line, at the end of the stream."""
        return self.feed(b"\n\n") if self._rest or self._data else []


def object_in(data: bytes) -> dict[str, Any] | None:
    """The JSON object that the data of an event is; None where it is none."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def written(events: Iterable[Mapping[str, Any]]) -> bytes:
    """Events as bytes, each with its type."""
    return b"".join(
        f"event: {event['type']}\ndata: {json.dumps(event, separators=(',', ':'))}\n\n".encode() for event in events
    )
