"""JSON of any size, parsed and encoded in small steps, so that the event loop keeps answering other requests.

The parser of the standard library blocks the process until it is done: seconds for 32 MiB of small values. Here a
first pass finds where large containers and strings end, and a second one hands everything small to that parser.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from json.decoder import JSONDecoder, scanstring  # type: ignore[attr-defined]
from typing import Any, TypeAlias

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
_MARKS_PER_STEP = 200
_MARK = re.compile(r'["\[\]{},]')
_BRACKET_OR_STRING = re.compile(r'[\[\]{}]|"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
_STRING_PART = re.compile(r'(?:[^"\\]++|\\.)*+', re.DOTALL)
_NO_OR_ONE_SPACE = ("", " ", "\t", "\n", "\r")
_SPACE = re.compile(r"[ \t\n\r]*")
_CLOSING = {"[": "]", "{": "}"}
_STRING_PIECE = re.compile(r"(?:[^\\]++|\\u.{4}|\\[^u])*+", re.DOTALL)
_HIGH_SURROGATE, _LOW_SURROGATE = re.compile("[\ud800-\udbff]"), re.compile("[\udc00-\udfff]")

Decode: TypeAlias = Callable[[str, int], tuple[Any, int]]


@dataclass(frozen=True, slots=True)
class Item:
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
    """Return the position after any whitespace."""
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


class LargeJson:
    """A large text, the ends of its large parts, and the large containers that are parsed."""

    def __init__(self, text: str, decode: Decode) -> None:
        self.containers: dict[int, Container] = {}
        self._text, self._decode = text, decode
        self._string_ends: dict[int, int] = {}
        # By start: the end, and the positions of the commas.
        self._large: dict[int, tuple[int, list[int]]] = {}

    def parse(self) -> Generator[None, None, tuple[Any, int]]:
        """Return the value in the text and where it ends; yields after each small step."""
        yield from self._find_parts()
        start = skip_whitespace(self._text, 0)
        return (yield from self._value(start, len(self._text)))

    def _find_parts(self) -> Generator[None, None, None]:
        text, opened, at, count = self._text, list[tuple[int, list[int]]](), 0, 0
        while at < len(text):
            mark = _MARK.search(text, at, at + SMALL_CHARS)
            if mark is None:
                at += SMALL_CHARS
                yield
                continue
            start, at = mark.span()
            match text[start]:
                case '"':
                    at = yield from self._string_end(at)
                    if at - start > SMALL_CHARS:
                        self._string_ends[start] = at
                    continue
                case "[" | "{":
                    opened.append((start, []))
                    _check_level(len(opened))
                case ",":
                    if opened:
                        opened[-1][1].append(start)
                case _:
                    if not opened:
                        raise ValueError(f"a bracket at character {start} closes nothing")
                    first, commas = opened.pop()
                    if at - first > SMALL_CHARS:
                        self._large[first] = at, commas
            count += 1
            if count > 2 * MAX_VALUES:
                raise InvalidInput(f"the body has more than {MAX_VALUES:,} JSON values; send fewer in one request")
            if count % _MARKS_PER_STEP == 0:
                yield
        if opened:
            raise IndexError

    def _string_end(self, at: int) -> Generator[None, None, int]:
        """Return the position after the closing quote of the string whose text starts here."""
        text = self._text
        while True:
            stop = min(at + SMALL_CHARS, len(text))
            part = _STRING_PART.match(text, at, stop)
            at = part.end() if part else at
            if text[at : at + 1] == '"':
                return at + 1
            if stop == len(text):
                raise IndexError
            yield

    def _value(self, at: int, stop: int) -> Generator[None, None, tuple[Any, int]]:
        text = self._text
        if at in self._string_ends:
            end = self._string_ends[at]
            return (yield from self._string(at + 1, end - 1)), end
        if at in self._large:
            container: Container = yield from self._container(at)
            self.containers[at] = container
            if text[at] == "[":
                return [item.value for item in container.items], container.end
            return {item.name: item.value for item in container.items}, container.end
        if stop - at <= SMALL_CHARS or text[at : at + 1] in ('"', "[", "{"):
            return self._decode(text, at)
        # A scalar with a lot of space after it.
        value, length = self._decode(text[at : at + SMALL_CHARS], 0)
        if length == SMALL_CHARS:
            raise ValueError(f"a number has too many digits at character {at}")
        return value, at + length

    def _container(self, at: int) -> Generator[None, None, Container]:
        text, (end, commas) = self._text, self._large[at]
        if text[end - 1] != _CLOSING[text[at]]:
            raise ValueError(f"{_CLOSING[text[at]]!r} is expected at character {end - 1}")
        items: list[Item] = []
        if commas or skip_whitespace(text, at + 1) < end - 1:
            for before, stop in zip([at, *commas], [*commas, end - 1], strict=True):
                items.append((yield from self._item(skip_whitespace(text, before + 1), stop, named=text[at] == "{")))
                yield
        return Container(at, end, tuple(items))

    def _item(self, start: int, stop: int, *, named: bool) -> Generator[None, None, Item]:
        text, name, value_start = self._text, "", start
        if named:
            if text[start] != '"':
                raise ValueError(f"a name is expected at character {start}")
            name, after = scanstring(text, start + 1)
            value_start = expect(text, skip_whitespace(text, after), ":")
        value, end = yield from self._value(value_start, stop)
        if skip_whitespace(text, end) != stop:
            raise ValueError(f"a comma or the end is expected at character {end}")
        return Item(start, value_start, end, value, name)

    def _string(self, at: int, end: int) -> Generator[None, None, str]:
        parts = [""]
        while at < end:
            piece = _STRING_PIECE.match(self._text, at, min(at + SMALL_CHARS, end))
            stop = piece.end() if piece and piece.end() > at else end
            part = scanstring(self._text[at:stop] + '"', 0)[0]
            if _HIGH_SURROGATE.fullmatch(parts[-1][-1:]) and _LOW_SURROGATE.fullmatch(part[:1]):
                # The two escapes of one character.
                part = (parts[-1][-1] + part[0]).encode("utf-16", "surrogatepass").decode("utf-16") + part[1:]
                parts[-1] = parts[-1][:-1]
            parts.append(part)
            at = stop
            yield
        return "".join(parts)


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
    large = LargeJson(text, decode)
    value, end = await run_in_slices(large.parse())
    if skip_whitespace(text, end) != len(text):
        raise ValueError("it continues after its end")
    return value, large.containers


_LONG_CHARS = 1 << 15


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
            parts.append(_dump(value[start : start + _LONG_CHARS])[1:-1])
            yield
        parts.append(b'"')
    elif levels and isinstance(value, Mapping) and (levels == 3 or any(map(_is_long, value.values()))):
        for number, (name, item) in enumerate(value.items()):
            parts.append((b"," if number else b"{") + _dump(name) + b":")
            yield from _encode(item, parts, levels=levels - 1)
        parts.append(b"}" if value else b"{}")
    elif levels and isinstance(value, list | tuple):
        for number, item in enumerate(value):
            parts.append(b"," if number else b"[")
            yield from _encode(item, parts, levels=levels - 1)
        parts.append(b"]" if value else b"[]")
    else:
        parts.append(_dump(value))
        yield


def _is_long(value: object) -> bool:
    return isinstance(value, str) and len(value) > _LONG_CHARS


def _dump(value: Any) -> bytes:
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    try:
        return text.encode()
    except UnicodeEncodeError:
        # Half a character of the client's, which has no UTF-8, is escaped as the client may send it.
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
