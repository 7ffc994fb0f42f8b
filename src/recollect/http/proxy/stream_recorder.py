"""Listen along to an answer that passes by: what the assistant says in it, as far as it came."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

# More than this of an answer is not kept, and no more of it than this is held before it is read.
_MAX_CHARS = 1 << 20
_PARSE_THRESHOLD_BYTES = 1 << 14
_MAX_BUFFER_BYTES = 32 << 20


class StreamRecorder:
    """Hears the bytes of one answer of a chat endpoint, streamed or whole."""

    def __init__(self, *, streamed: bool, encoding: str = "") -> None:
        self._streamed = streamed
        self._decode = _decoder(encoding)
        self._buffer = bytearray()
        self._texts: list[str] = []
        self._chars = 0

    def feed(self, chunk: bytes) -> None:
        """Another piece; what it means is found out later, for someone waits for it."""
        if self._decode is None or len(self._buffer) > _MAX_BUFFER_BYTES:
            return
        try:
            self._buffer += self._decode(chunk)
        except zlib.error:
            self._decode = None
            return
        if self._streamed and len(self._buffer) > _PARSE_THRESHOLD_BYTES:
            self._parse_events(self._buffer.rfind(b"\n") + 1)

    @property
    def pending_bytes(self) -> bytes:
        """What was heard and not yet read, no longer encoded."""
        return bytes(self._buffer)

    def text(self) -> str:
        """What the assistant said; after it nothing more is heard."""
        if self._streamed:
            self._parse_events(len(self._buffer))
        else:
            self._append_text(_parse_completion(bytes(self._buffer)))
        self._decode = None
        return "".join(self._texts)

    def _parse_events(self, end: int) -> None:
        # Together: a thousand may be listened to at a time, and each word by itself takes ten times the room.
        self._append_text("".join(_content(event, "delta") for event in _events(bytes(self._buffer[:end]))))
        del self._buffer[:end]

    def _append_text(self, text: str) -> None:
        if text and self._chars < _MAX_CHARS:
            self._texts.append(text[: _MAX_CHARS - self._chars])
            self._chars += len(text)


def _identity(data: bytes) -> bytes:
    return data


def _decoder(encoding: str) -> Callable[[bytes], bytes] | None:
    match encoding.strip().lower():
        case "" | "identity":
            return _identity
        case "gzip" | "x-gzip":
            return zlib.decompressobj(31).decompress
        case "deflate":
            return zlib.decompressobj().decompress
        case _:
            return None


def _events(data: bytes) -> Iterator[Any]:
    """The JSON of each event; lines that are none say nothing."""
    for line in data.splitlines():
        if line.startswith(b"data:") and line[5:].strip() not in (b"", b"[DONE]"):
            try:
                yield json.loads(line[5:])
            except (ValueError, RecursionError):
                continue


def _parse_completion(data: bytes) -> str:
    try:
        return _content(json.loads(data), "message")
    except (ValueError, RecursionError):
        return ""


def _content(answer: Any, part: str) -> str:
    choices = answer.get("choices") if isinstance(answer, Mapping) else None
    for choice in choices if isinstance(choices, list) else ():
        if isinstance(choice, Mapping) and choice.get("index", 0) == 0:
            message = choice.get(part)
            content = message.get("content") if isinstance(message, Mapping) else None
            return content if isinstance(content, str) else ""
    return ""
