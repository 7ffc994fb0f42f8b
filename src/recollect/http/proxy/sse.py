"""Server-sent events: parse them from bytes in pieces of any size, write them, and record a chat's answer."""

from __future__ import annotations

import json
import logging
import zlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from recollect.aio.slices import TimeSlice
from recollect.errors import InvalidInput
from recollect.http.large_json import parse_json

_log = logging.getLogger("recollect")

# An answer is recorded up to this length; bytes are parsed once so many have arrived, or at the end.
_MAX_CHARS = 1 << 20
_PARSE_THRESHOLD_BYTES = 1 << 14
# An answer that is not streamed, and one event of a stream, are parsed up to this size.
MAX_ANSWER_BYTES = 8 << 20
_MAX_EVENT_BYTES = 1 << 20
# A few kilobytes of gzip can be gigabytes: so much of a stream is decompressed in all, and at a time.
MAX_STREAM_BYTES = 256 << 20
_MAX_PIECE_BYTES = 1 << 16


class SseReader:
    """Takes the bytes of a stream as they arrive, and returns the data of each complete event.

    Of a line, or of the lines of one event, that are longer than any event should be, only the beginning is kept.
    """

    def __init__(self) -> None:
        self._buffer = bytearray()
        # The start of the buffer without a line break, so that a large event in small pieces is searched once.
        self._searched = 0
        self._data: list[bytes] = []
        self._data_bytes = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the data of the events that are complete now."""
        complete = []
        self._buffer += chunk
        start = 0
        while (end := self._buffer.find(b"\n", max(self._searched, start))) >= 0:
            line = bytes(self._buffer[start:end]).removesuffix(b"\r")
            start = end + 1
            if line.startswith(b"data:"):
                self._data_bytes += len(line)
                if self._data_bytes <= MAX_ANSWER_BYTES:
                    self._data.append(line[5:].removeprefix(b" "))
            elif not line and self._data:
                complete.append(b"\n".join(self._data))
                self._data, self._data_bytes = [], 0
        del self._buffer[:start]
        del self._buffer[MAX_ANSWER_BYTES:]
        self._searched = len(self._buffer)
        return complete

    def end(self) -> list[bytes]:
        """Return the data of an event that no blank line ended before the end of the stream."""
        return self.feed(b"\n\n") if self._buffer or self._data else []


def decode_object(data: bytes) -> dict[str, Any] | None:
    """Return the JSON object in some bytes, or None if they hold something else."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


async def read_object(data: bytes) -> dict[str, Any] | None:
    """Return the JSON object in a body of any size, or None if it holds something else."""
    try:
        value = await parse_json(data)
    except InvalidInput:
        return None
    return value if isinstance(value, dict) else None


EVENT_STREAM = "text/event-stream"
EVENT_STREAM_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


def event_schema(names: Iterable[str], **fields: Any) -> dict[str, Any]:
    """Return the schema of one event of a stream, with these names and more fields."""
    event = {"type": "string", "enum": list(names)}
    data = {"type": "string", "contentMediaType": "application/json"}
    return {"type": "object", "properties": {**fields, "event": event, "data": data}, "required": ["event", "data"]}


def encode_event(name: str, data: Mapping[str, Any], *, id: str = "") -> bytes:
    """Encode an event; JSON in ASCII has no line breaks of any kind, so that the data is one line."""
    head = f"id: {id}\n" if id else ""
    return f"{head}event: {name}\ndata: {json.dumps(data, separators=(',', ':'))}\n\n".encode()


def encode_events(events: Iterable[Mapping[str, Any]]) -> bytes:
    """Encode events, each named after its type."""
    return b"".join(encode_event(event["type"], event) for event in events)


class StreamRecorder:
    """Records what the assistant says in a chat completion, streamed or not, while it is relayed.

    `is_too_large` is set once the decoded answer exceeds what is read; nothing is recorded then.
    """

    def __init__(self, *, streamed: bool, encoding: str = "") -> None:
        self._reader = SseReader() if streamed else None
        self._decode = _decoder(encoding)
        self._buffer = bytearray()
        self._texts: list[str] = []
        self._chars = 0
        self._bytes_left = MAX_STREAM_BYTES if streamed else MAX_ANSWER_BYTES
        self.is_too_large = False

    async def feed(self, chunk: bytes) -> None:
        """Take the next piece; parsing it waits, because the client waits for the relay."""
        time_slice = TimeSlice()
        while chunk and self._decode is not None and self._chars < _MAX_CHARS:
            try:
                data, chunk = self._decode(chunk)
            except zlib.error:
                self._decode = None
                return
            self._bytes_left -= len(data)
            if self._bytes_left < 0:
                self._give_up()
                return
            self._buffer += data
            if self._reader is not None and len(self._buffer) > _PARSE_THRESHOLD_BYTES:
                self._append_events(self._reader.feed(bytes(self._buffer)))
                self._buffer.clear()
            await time_slice.pause()

    def _give_up(self) -> None:
        _log.warning("an answer is larger than memory reads; it is relayed, and nothing is learned from it")
        self.is_too_large = True
        self._decode, self._reader = None, None
        self._buffer.clear()
        self._texts.clear()

    @property
    def pending_bytes(self) -> bytes:
        """The decoded bytes that are not parsed yet: of an answer that is not streamed, all of them."""
        return bytes(self._buffer)

    async def text(self) -> str:
        """End the recording and return what the assistant said."""
        if self._reader is None:
            self._append_text(_content(await read_object(self.pending_bytes), "message"))
        else:
            self._append_events(self._reader.feed(bytes(self._buffer)))
            self._append_events(self._reader.end())
        self._decode = None
        return "".join(self._texts)

    def _append_events(self, events: Iterable[bytes]) -> None:
        # A chunk is one line, so lines that lack the blank line between them are events of their own. Joined at
        # once: a thousand streams may be recorded, and single words take ten times the memory.
        lines = (line for data in events for line in data.split(b"\n"))
        short = (line for line in lines if len(line) <= _MAX_EVENT_BYTES)
        self._append_text("".join(_content(decode_object(line), "delta") for line in short))

    def _append_text(self, text: str) -> None:
        if text and self._chars < _MAX_CHARS:
            self._texts.append(text[: _MAX_CHARS - self._chars])
            self._chars += len(text)


def _decoder(encoding: str) -> Callable[[bytes], tuple[bytes, bytes]] | None:
    """Return a function that decodes the first part of some bytes, and returns the rest of them with it."""
    match encoding.strip().lower():
        case "" | "identity":
            return lambda data: (data, b"")
        case "gzip" | "x-gzip":
            inflater = zlib.decompressobj(31)
        case "deflate":
            inflater = zlib.decompressobj()
        case _:
            return None
    return lambda data: (inflater.decompress(data, _MAX_PIECE_BYTES), inflater.unconsumed_tail)


def _content(answer: Mapping[str, Any] | None, part: str) -> str:
    choices = answer.get("choices") if answer else None
    for choice in choices if isinstance(choices, list) else ():
        if isinstance(choice, Mapping) and choice.get("index", 0) == 0:
            message = choice.get(part)
            content = message.get("content") if isinstance(message, Mapping) else None
            return content if isinstance(content, str) else ""
    return ""
