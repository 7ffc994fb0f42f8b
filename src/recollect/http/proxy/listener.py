"""Listen along to an answer that passes by: what the assistant says in it, as far as it came."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

# More than this of an answer is not kept, and no more of it than this is held before it is read.
_MOST_CHARS = 1 << 20
_READ_AT = 1 << 14
_MOST_WHOLE = 32 << 20


class Listener:
    """Hears the bytes of one answer of a chat endpoint, streamed or whole."""

    def __init__(self, *, streamed: bool, encoding: str = "") -> None:
        self._streamed = streamed
        self._decode = _decoder(encoding)
        self._heard = bytearray()
        self._said: list[str] = []
        self._chars = 0

    def hear(self, chunk: bytes) -> None:
        """Another piece; what it means is found out later, for someone waits for it."""
        if self._decode is None or len(self._heard) > _MOST_WHOLE:
            return
        try:
            self._heard += self._decode(chunk)
        except zlib.error:
            self._decode = None
            return
        if self._streamed and len(self._heard) > _READ_AT:
            self._read_events(self._heard.rfind(b"\n") + 1)

    @property
    def plain(self) -> bytes:
        """What was heard and not yet read, no longer encoded."""
        return bytes(self._heard)

    def text(self) -> str:
        """What the assistant said; after it nothing more is heard."""
        if self._streamed:
            self._read_events(len(self._heard))
        else:
            self._say(_said_whole(bytes(self._heard)))
        self._decode = None
        return "".join(self._said)

    def _read_events(self, end: int) -> None:
        # Together: a thousand may be listened to at a time, and each word by itself takes ten times the room.
        self._say("".join(_content(event, "delta") for event in _events(bytes(self._heard[:end]))))
        del self._heard[:end]

    def _say(self, text: str) -> None:
        if text and self._chars < _MOST_CHARS:
            self._said.append(text[: _MOST_CHARS - self._chars])
            self._chars += len(text)


def _as_it_is(data: bytes) -> bytes:
    return data


def _decoder(encoding: str) -> Callable[[bytes], bytes] | None:
    match encoding.strip().lower():
        case "" | "identity":
            return _as_it_is
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


def _said_whole(data: bytes) -> str:
    try:
        return _content(json.loads(data), "message")
    except (ValueError, RecursionError):
        return ""


def _content(answer: Any, part: str) -> str:
    choices = answer.get("choices") if isinstance(answer, Mapping) else None
    for choice in choices if isinstance(choices, list) else ():
        if isinstance(choice, Mapping) and choice.get("index", 0) == 0:
            said = choice.get(part)
            content = said.get("content") if isinstance(said, Mapping) else None
            return content if isinstance(content, str) else ""
    return ""
