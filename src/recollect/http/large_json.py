"""JSON of any size, parsed and encoded in small steps, so that the event loop keeps answering other requests.

The parser of the standard library blocks the process until it is done: seconds for 32 MiB of small values. Here it
gets one number or short string at a time.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from json.decoder import JSONDecoder, scanstring  # type: ignore[attr-defined]
from typing import Any, NamedTuple, TypeAlias

from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from recollect.aio.slices import run_in_slices
from recollect.errors import InvalidInput

# Texts and parts up to this size are parsed at once.
SMALL_CHARS = 32 << 10
# Millions of values would take gigabytes, and the garbage collector seconds.
MAX_VALUES = 200_000
# A value is parsed, copied and written by functions that call themselves for each level.
MAX_LEVELS = 256
_VALUES_PER_STEP = 16
_BRACKET_OR_STRING = re.compile(r'[\[\]{}]|"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
_SHORT_STRING = re.compile(r'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
_STRING_PIECE = re.compile(r'(?:[^"\\]++|\\u.{4}|\\[^u])*+', re.DOTALL)
_NUMBER_OR_WORD = re.compile(r"[\w.+-]*")
_NO_OR_ONE_SPACE = ("", " ", "\t", "\n", "\r")
_SPACE = re.compile(r"[ \t\n\r]*")
_HIGH_SURROGATE, _LOW_SURROGATE = re.compile("[\ud800-\udbff]"), re.compile("[\udc00-\udfff]")

Decode: TypeAlias = Callable[[str, int], tuple[Any, int]]


class Item(NamedTuple):
    """A member of an object or an element of an array, with its positions in the text."""

    start: int
    value_start: int
    end: int
    value: Any
    name: str = ""


@dataclass(frozen=True, slots=True)
class Container:
    """An object or an array, from its opening bracket to after the closing one, and its items."""

    start: int
    end: int
    items: tuple[Item, ...]


def skip_whitespace(text: str, at: int) -> int:
    # The pattern is needed only for more than one space, which is rare.
    if text[at : at + 1] not in _NO_OR_ONE_SPACE:
        return at
    space = _SPACE.match(text, at)
    return space.end() if space else at


def expect(text: str, at: int, mark: str) -> int:
    """Return the position after a mark and whitespace; raises ValueError if another character stands there."""
    if text[at] != mark:
        raise ValueError(f"{mark!r} is expected at character {at}")
    return skip_whitespace(text, at + 1)


def check_levels(text: str) -> None:
    """Raise InvalidInput if a JSON text is nested too deeply."""
    if text.count("[") + text.count("{") <= MAX_LEVELS:
        return
    level = 0
    for mark in _BRACKET_OR_STRING.finditer(text):
        if mark[0] in ("[", "{"):
            level += 1
            _check_level(level)
        elif mark[0] in ("]", "}"):
            level -= 1


def _check_level(level: int) -> None:
    if level > MAX_LEVELS:
        raise InvalidInput(f"the body is nested too deeply: it must have at most {MAX_LEVELS} levels")


class _LargeParser:
    """Parses a large text; `containers` are its large ones, by their positions."""

    def __init__(self, text: str, decode: Decode) -> None:
        self.containers: dict[int, Container] = {}
        self._text, self._decode, self._count = text, decode, 0

    def value(self, at: int, level: int = 1) -> Generator[None, None, tuple[Any, int]]:
        """Return the value that starts here and where it ends; yields after each small step."""
        text, start = self._text, at
        if text[at] == '"':
            return (yield from self._long_string(at + 1))
        if text[at] not in ("[", "{"):
            return self._small(at) or self._decode(text, at)
        _check_level(level)
        is_object, items = text[at] == "{", list[Item]()
        closing = "}" if is_object else "]"
        at = skip_whitespace(text, at + 1)
        while text[at] != closing:
            name, name_at = "", expect(text, at, ",") if items else at
            at = name_at
            if is_object:
                if text[at] != '"':
                    raise ValueError(f"a name is expected at character {at}")
                name, after = self._small(at) or (yield from self._long_string(at + 1))
                at = expect(text, skip_whitespace(text, after), ":")
            value, end = self._small(at) or (yield from self.value(at, level + 1))
            items.append(Item(name_at, at, end, value, name))
            at = skip_whitespace(text, end)
            self._count += 1
            if self._count > MAX_VALUES:
                raise InvalidInput(f"the body has more than {MAX_VALUES:,} JSON values; send fewer in one request")
            if not self._count % _VALUES_PER_STEP:
                yield
        if at - start > SMALL_CHARS:
            self.containers[start] = Container(start, at + 1, tuple(items))
        return ({each.name: each.value for each in items} if is_object else [each.value for each in items]), at + 1

    def _small(self, at: int) -> tuple[Any, int] | None:
        """Return the number, constant or short string that starts here, and where it ends; None for other values."""
        text = self._text
        if text[at] == '"':
            return scanstring(text, at + 1) if _SHORT_STRING.match(text, at, at + SMALL_CHARS) else None
        if text[at] in ("[", "{"):
            return None
        word = _NUMBER_OR_WORD.match(text, at, at + SMALL_CHARS)
        if word is not None and word.end() == at + SMALL_CHARS:
            raise ValueError(f"a number has too many digits at character {at}")
        return self._decode(text, at)

    def _long_string(self, at: int) -> Generator[None, None, tuple[str, int]]:
        """Return the string whose text starts here, piece by piece, and the position after its closing quote."""
        text, parts = self._text, [""]
        while text[at] != '"':
            piece = _STRING_PIECE.match(text, at, at + SMALL_CHARS)
            stop = piece.end() if piece and piece.end() > at else len(text)
            part = scanstring(text[at:stop] + '"', 0)[0]
            if _HIGH_SURROGATE.fullmatch(parts[-1][-1:]) and _LOW_SURROGATE.fullmatch(part[:1]):
                # The two escapes of one character.
                part = (parts[-1][-1] + part[0]).encode("utf-16", "surrogatepass").decode("utf-16") + part[1:]
                parts[-1] = parts[-1][:-1]
            parts.append(part)
            at = stop
            yield
        return "".join(parts), at + 1


@contextmanager
def json_errors(kind: str = "JSON") -> Iterator[None]:
    """Raise what goes wrong while a body is parsed as InvalidInput; the body should be a `kind`."""
    try:
        yield
    except UnicodeDecodeError as error:
        raise InvalidInput(f"the body is not UTF-8: {error.reason} at byte {error.start}") from None
    except ValueError as error:
        raise InvalidInput(f"the body is not {kind}: {error}") from None
    except (StopIteration, RuntimeError, IndexError):
        # A generator reports the end of another one as a RuntimeError.
        raise InvalidInput(f"the body is not {kind}: it ends too early") from None


async def parse_json(raw: bytes) -> Any:
    """Return the value of a JSON body of any size; raises InvalidInput."""
    with json_errors():
        text = raw.decode("utf-8")
        if len(text) <= SMALL_CHARS:
            check_levels(text)
            return json.loads(text)
        return (await parse_large(text, JSONDecoder().raw_decode))[0]


async def parse_large(text: str, decode: Decode) -> tuple[Any, Mapping[int, Container]]:
    """Return the value in a JSON text, and its large containers by their positions; raises as the decoder does."""
    parser = _LargeParser(text, decode)
    value, end = await run_in_slices(parser.value(skip_whitespace(text, 0)))
    if skip_whitespace(text, end) != len(text):
        raise ValueError("it continues after its end")
    return value, parser.containers


_LONG_CHARS = 1 << 15


class SafeJSONResponse(JSONResponse):
    """JSON in which half a character is escaped."""

    def render(self, content: Any) -> bytes:
        return dump_json(content)


class SlicedJSONResponse(JSONResponse):
    """A JSON object whose lists or texts may be long; it is encoded when it is sent."""

    def render(self, content: Any) -> bytes:
        self._content = content
        return b""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        parts: list[bytes] = []
        await run_in_slices(_encode(self._content, parts, levels=3))
        self.headers["content-length"] = str(sum(map(len, parts)))
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        for part in _pieces(parts):
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


def _encode(value: Any, parts: list[bytes], *, levels: int) -> Generator[None, None, None]:
    """Append the JSON of a value, the items of large containers one by one down to so many levels."""
    if isinstance(value, str) and len(value) > _LONG_CHARS:
        parts.append(b'"')
        for start in range(0, len(value), _LONG_CHARS):
            parts.append(dump_json(value[start : start + _LONG_CHARS])[1:-1])
            yield
        parts.append(b'"')
    elif (
        levels
        and isinstance(value, Mapping)
        and (levels == 3 or any(isinstance(each, str) and len(each) > _LONG_CHARS for each in value.values()))
    ):
        for number, (name, item) in enumerate(value.items()):
            parts.append((b"," if number else b"{") + dump_json(name) + b":")
            yield from _encode(item, parts, levels=levels - 1)
        parts.append(b"}" if value else b"{}")
    elif levels and isinstance(value, list | tuple):
        for number, item in enumerate(value):
            parts.append(b"," if number else b"[")
            yield from _encode(item, parts, levels=levels - 1)
        parts.append(b"]" if value else b"[]")
    else:
        parts.append(dump_json(value))
        yield


def dump_json(value: Any) -> bytes:
    """Encode a value; half a character of the client's, which has no UTF-8, is escaped as the client may send it."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    try:
        return text.encode()
    except UnicodeEncodeError:
        return json.dumps(value, allow_nan=False, separators=(",", ":")).encode()


def _pieces(parts: list[bytes]) -> Generator[bytes, None, None]:
    """Yield the parts joined to pieces of a size that is worth a message."""
    start, size = 0, 0
    for at, part in enumerate(parts, 1):
        size += len(part)
        if size >= _LONG_CHARS:
            yield b"".join(parts[start:at])
            start, size = at, 0
    yield b"".join(parts[start:])
