"""Edit JSON with comments and trailing commas in place: every byte that is not changed on purpose stays.

Editors keep comments in their settings, which Python's json refuses. The libraries that keep comments write the
whole document anew, in their own layout.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

_BLANK = re.compile(r"(?:[ \t\r\n\ufeff]+|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
# To the end of the line, if nothing but a comment follows.
_REST_OF_LINE = re.compile(r"(?:[ \t]+|/\*[^\n]*?\*/)*(?://[^\r\n]*)?(?=\r?\n)")
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"')
_SCALAR = re.compile(r"-?\d[\d.eE+-]*|true|false|null")
_MAX_DEPTH = 200


class InvalidJson(ValueError):
    """A document that cannot be read; the message names the line."""


@dataclass(slots=True)
class _Node:
    """A value with its place; `members` are those of an object by key, or those of an array by index."""

    start: int
    end: int
    value: Any
    members: list[_Member] = field(default_factory=list)


@dataclass(slots=True)
class _Member:
    key: str | int
    start: int
    node: _Node


def parse(text: str) -> Any:
    """Return the value of a document; an empty one is an empty object."""
    return _parse_document(text).value


def set_value(text: str, path: Sequence[str], value: Any) -> str:
    """Return the document with a value at a path of keys; missing objects are added."""
    text = text if text.strip() else "{}\n"
    node, depth = _parse_document(text), 0
    while depth < len(path):
        if not isinstance(node.value, dict):
            raise InvalidJson(f"{'.'.join(path[:depth]) or 'the document'} is not an object")
        member = next((each for each in node.members if each.key == path[depth]), None)
        if member is None:
            for key in reversed(path[depth + 1 :]):
                value = {key: value}
            return _insert(text, node, depth, f"{json.dumps(path[depth], ensure_ascii=False)}: ", value)
        node, depth = member.node, depth + 1
    if node.value == value:
        return text
    return text[: node.start] + _dump(text, value, _indent_of(text, node.start)) + text[node.end :]


def append(text: str, path: Sequence[str], value: Any) -> str:
    """Return the document with one more value in the array at a path, which is added if it is missing."""
    node = _find(_parse_document(text), path) if text.strip() else None
    if node is None:
        return set_value(text, path, [value])
    if not isinstance(node.value, list):
        raise InvalidJson(f"{'.'.join(path)} is not an array")
    return _insert(text, node, len(path), "", value)


def remove(text: str, path: Sequence[str | int]) -> str:
    """Return the document without the value at a path of keys and indexes; unchanged if there is none."""
    parent = _find(_parse_document(text), path[:-1])
    index = next((n for n, each in enumerate(parent.members) if each.key == path[-1]), None) if parent else None
    if parent is None or index is None:
        return text
    member, comma = parent.members[index], _comma_after(text, parent.members[index].node.end)
    start = len(text[: member.start].rstrip(" \t\r\n"))
    end = member.node.end if comma is None else comma + 1
    if index + 1 < len(parent.members) or (index and comma is not None):
        return text[:start] + text[end:]
    if index:
        before = _comma_after(text, parent.members[index - 1].node.end)
        assert before is not None
        return text[:before] + text[before + 1 : start] + text[end:]
    if not text[parent.start + 1 : start].strip() and not text[end : parent.end - 1].strip():
        return text[: parent.start + 1] + text[parent.end - 1 :]
    return text[:start] + text[end:]


def _find(node: _Node, path: Sequence[str | int]) -> _Node | None:
    for key in path:
        member = next((each for each in node.members if each.key == key), None)
        if member is None:
            return None
        node = member.node
    return node


def _insert(text: str, parent: _Node, depth: int, head: str, value: Any) -> str:
    """Insert a member at the end of an object or array."""
    newline = "\r\n" if "\r\n" in text else "\n"
    outer = _indent_of(text, parent.start)
    if not parent.members:
        indent = outer + _unit_of(text)
        member = f"{newline}{indent}{head}{_dump(text, value, indent)}"
        inside = text[parent.start + 1 : parent.end - 1]
        tail = "" if "\n" in inside[len(inside.rstrip(" \t\r\n")) :] else newline + outer
        at = parent.start + 1 + len(inside.rstrip(" \t\r\n"))
        return text[:at] + member + (tail or text[at : parent.end - 1]) + text[parent.end - 1 :]
    last = parent.members[-1]
    is_on_one_line = "\n" not in text[parent.start : last.start]
    separator = " " if is_on_one_line else newline + _indent_of(text, last.start)
    indent = _indent_of(text, parent.start if is_on_one_line else last.start)
    comma = _comma_after(text, last.node.end)
    at = last.node.end if comma is None else comma + 1
    rest = None if is_on_one_line else _REST_OF_LINE.match(text, at)
    place = rest.end() if rest else at
    added = separator + head + _dump(text, value, indent)
    if comma is not None:
        added += ","
    between = ("," if comma is None else "") + text[last.node.end : place]
    return text[: last.node.end] + between + added + text[place:]


def _comma_after(text: str, at: int) -> int | None:
    at = _skip_blank(text, at)
    return at if text[at : at + 1] == "," else None


def _indent_of(text: str, at: int) -> str:
    """Return the indentation of the line of a position."""
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line[: len(line) - len(line.lstrip(" \t"))]


def _unit_of(text: str) -> str:
    """Return the indentation of one level."""
    indented = re.search(r'^([ \t]+)["}\]]', text, re.MULTILINE)
    return indented[1] if indented else "  "


def _dump(text: str, value: Any, indent: str) -> str:
    newline = "\r\n" if "\r\n" in text else "\n"
    return json.dumps(value, indent=_unit_of(text), ensure_ascii=False).replace("\n", newline + indent)


def _parse_document(text: str) -> _Node:
    if not text.strip("\ufeff \t\r\n"):
        return _Node(0, 0, {})
    node = _parse_value(text, _skip_blank(text, 0), 0)
    end = _skip_blank(text, node.end)
    if end < len(text):
        raise _error(text, end, "something follows the document")
    return node


def _parse_value(text: str, at: int, depth: int) -> _Node:
    if depth > _MAX_DEPTH:
        raise _error(text, at, "it is nested too deep")
    if text[at : at + 1] in ("{", "["):
        return _parse_container(text, at, depth)
    match = _STRING.match(text, at) or _SCALAR.match(text, at)
    try:
        if match is not None:
            return _Node(at, match.end(), json.loads(match[0]))
    except ValueError:
        pass
    raise _error(text, at, "a value is missing or invalid")


def _parse_container(text: str, start: int, depth: int) -> _Node:
    is_object = text[start] == "{"
    closing = "}" if is_object else "]"
    node = _Node(start, start, {} if is_object else [])
    at = _skip_blank(text, start + 1)
    while text[at : at + 1] != closing:
        member_start = at
        name: str | int = len(node.members)
        if is_object:
            match = _STRING.match(text, at)
            if match is None:
                raise _error(text, at, f"a key or {closing} is missing")
            name = json.loads(match[0])
            at = _skip_blank(text, match.end())
            if text[at : at + 1] != ":":
                raise _error(text, at, "a colon is missing")
            at = _skip_blank(text, at + 1)
        value = _parse_value(text, at, depth + 1)
        node.members.append(_Member(name, member_start, value))
        if is_object:
            node.value[name] = value.value
        else:
            node.value.append(value.value)
        at = _skip_blank(text, value.end)
        if text[at : at + 1] == ",":
            at = _skip_blank(text, at + 1)
        elif text[at : at + 1] != closing:
            raise _error(text, at, f"a comma or {closing} is missing")
    node.end = at + 1
    return node


def _skip_blank(text: str, at: int) -> int:
    match = _BLANK.match(text, at)
    assert match is not None
    return match.end()


def _error(text: str, at: int, problem: str) -> InvalidJson:
    return InvalidJson(f"line {text.count(chr(10), 0, at) + 1}: {problem}")
