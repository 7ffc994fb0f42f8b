"""Make links and images in memories harmless: they stay readable, but nothing follows or loads them.

A memory may come from a web page or from someone else's words, and an image that a chat window loads carries
whatever its address holds to whoever owns the host. So images become their alternative text, HTML tags that load
or run something go or fall apart, and addresses are written so that no renderer knows them:
https://a.example -> hxxps://a[.]example.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

# Nothing below can match a text without one of these.
_SUSPECT = re.compile(r"[<\[:/\\&]|www\.", re.IGNORECASE)
_LOADING_TAGS = (
    "applet|area|audio|base|body|button|embed|form|frame|iframe|image|img|input|link|math|meta|object"
    "|picture|script|source|style|svg|track|use|video"
)
_TAG = re.compile(rf"</?(?:a|{_LOADING_TAGS})(?=[\s/>])[^<>]*+>", re.IGNORECASE)
# A tag that nothing here ends: whatever follows in the prompt could. "<a" alone is a comparison more often.
_OPEN_TAG = re.compile(rf"<(?=/?(?:{_LOADING_TAGS})(?:[\s/]|$)|/?a[\s/][^<>=]*+=)", re.IGNORECASE)
_ALT = re.compile(r"""\balt\s*+=\s*+(?:"([^"]*+)"|'([^']*+)')""", re.IGNORECASE)
_TARGET = r"\((?:[^()]|\([^()]*+\))*+\)"
_IMAGE = re.compile(rf"!\[([^\[\]]*+)\](?:{_TARGET}|\[[^\[\]]*+\])")
_LINK = re.compile(rf"\[([^\[\]]*+)\]({_TARGET})")
_EXTERNAL = re.compile(r"[:&\\]|//|www\.", re.IGNORECASE)
_DEFINITION = re.compile(r"^( {0,3})\[([^\[\]\n]{1,200})\]:(?=[ \t]*\S)", re.MULTILINE)

# What a renderer reads as the character itself: where an address could be made of it, it must not stay hidden.
_ENTITY = re.compile(
    r"&(?:#0*+([0-9]{1,3})(?![0-9]);?|#x0*+([0-9a-f]{1,2})(?![0-9a-f]);?|(colon|sol|bsol|period|tab|newline);)",
    re.IGNORECASE,
)
_NAMED = {"colon": ":", "sol": "/", "bsol": "\\", "period": ".", "tab": " ", "newline": " "}
_IN_ADDRESSES = re.compile(r"[a-z0-9:/\\. ]", re.IGNORECASE)

_HTTP = re.compile(r"http(?=s?:[^\s:])", re.IGNORECASE)
_OTHER_SCHEME = re.compile(r"(?<!hxxp)(?<!hxxps):(?=[\\/]{2})", re.IGNORECASE)
_SCRIPT = re.compile(
    r"(?<=\bjavascript):(?=\S)|(?<=\bvbscript):(?=\S)"
    r"|(?<=\bdata):(?=(?:[a-z0-9.+-]{1,60}/[a-z0-9.+-]{1,60})?(?:;[a-z0-9=.+-]{1,60}){0,4},)",
    re.IGNORECASE,
)
# The host of an address: after a scheme, or after // where markup would take it for one.
_HOST = re.compile(r"""(?<=[:\]("'=<])([\\/]{2,})([^\s\\/?#"'<>()\[\]]{1,255})""")
# Alone, // starts an address too when more than a host follows.
_SLASHES = re.compile(r"""(?<![\w:/\\])([\\/]{2,8}+)([^\s\\/?#"'<>()\[\]]{1,255}+)(?=[/?]\S)""")
_MAIL = re.compile(r"(?<=\bmailto):(?=\S)", re.IGNORECASE)
_WWW = re.compile(r"\bwww\.(?=\w)", re.IGNORECASE)
# An address without a scheme counts as one when it carries a query: that is how data leaves.
_BARE = re.compile(r"(?<![\w@/.\\-])(?:[a-z0-9-]{1,63}\.){1,8}[a-z]{2,24}(?=/[^\s?]{0,512}\?\S)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Defanged:
    """The harmless text, and what was found in it: "html", "image", "link", "script"."""

    text: str
    kinds: frozenset[str] = frozenset()


def defang(text: str) -> Defanged:
    """Images to their text, links to their words and a dead address; prose without either stays as it is.

    Call it on visible text (see `visible`): a zero-width character inside a scheme would hide it.
    """
    if not _SUSPECT.search(text if text.isascii() else text.translate(_lookalikes())):
        return Defanged(text)
    text = _ENTITY.sub(_decode_entity, text)
    kinds: set[str] = set()
    for kind, rule, harmless in _MARKUP:
        text = _replace_matches(rule, harmless, text, kind=kind, kinds=kinds)
    # Only now, when no markup is left that could vanish and join two halves of an address.
    for kind, rule, harmless in _ADDRESSES:
        text = _replace_matches(rule, harmless, text, kind=kind, kinds=kinds)
    return Defanged(text, frozenset(kinds))


def _replace_matches(
    rule: re.Pattern[str], harmless: Callable[[re.Match[str]], str], text: str, *, kind: str, kinds: set[str]
) -> str:
    """The text with every match made harmless. Look-alikes match too, but stay where nothing matches."""
    folded = text if text.isascii() else text.translate(_lookalikes())
    parts, last = [], 0
    for match in rule.finditer(folded):
        new = harmless(match)
        if new != match[0]:
            parts += [text[last : match.start()], new]
            last = match.end()
    if not parts:
        return text
    kinds.add(kind)
    return "".join([*parts, text[last:]])


@cache
def _lookalikes() -> dict[int, str]:
    """Characters that a model may read as ASCII, each to one character so that positions stay the same."""
    fold = {code: unicodedata.normalize("NFKC", chr(code)) for span in _STYLED for code in range(*span)}
    fold = {code: plain for code, plain in fold.items() if len(plain) == 1 and plain.isascii()}
    return fold | dict.fromkeys(map(ord, "\u02d0\u2236\ua789\ufe55"), ":") | dict.fromkeys(map(ord, "⁄∕⧸"), "/")


# Full-width ASCII, mathematical letters, letters in circles.
_STYLED = ((0xFF01, 0xFF5F), (0x1D400, 0x1D800), (0x24B6, 0x24EA))


def _decode_entity(entity: re.Match[str]) -> str:
    """The character that an entity stands for, if addresses are made of such; else the entity."""
    decimal, hexadecimal, name = entity.groups()
    character = _NAMED[name.lower()] if name else chr(int(decimal) if decimal else int(hexadecimal, 16))
    # Within a scheme browsers pass over line ends and tabs.
    character = " " if character in "\t\n\r" else character
    return character if _IN_ADDRESSES.fullmatch(character) else entity[0]


def _break_entity(entity: re.Match[str]) -> str:
    """An entity that another one was hiding, no longer one."""
    return entity[0] if _decode_entity(entity) == entity[0] else f"& {entity[0][1:]}"


def _alt_text(tag: re.Match[str]) -> str:
    alt = _ALT.search(tag[0])
    return f" {(alt[1] or alt[2] or '').strip()} " if alt else " "


def _dead_link(link: re.Match[str]) -> str:
    return f"{link[1]} {link[2]}" if _EXTERNAL.search(link[2]) else link[0]


_MARKUP = (
    ("link", _ENTITY, _break_entity),
    ("html", _TAG, _alt_text),
    ("html", _OPEN_TAG, lambda _: "< "),
    ("image", _IMAGE, lambda image: image[1]),
    ("link", _LINK, _dead_link),
    ("link", _DEFINITION, lambda definition: f"{definition[1]}{definition[2]}:"),
)
_ADDRESSES = (
    ("link", _HTTP, lambda _: "hxxp"),
    ("link", _OTHER_SCHEME, lambda _: "[:]"),
    ("link", _MAIL, lambda _: "[:]"),
    ("script", _SCRIPT, lambda _: "[:]"),
    ("link", _HOST, lambda host: host[1] + host[2].replace(".", "[.]")),
    ("link", _SLASHES, lambda host: host[1] + host[2].replace(".", "[.]")),
    ("link", _WWW, lambda _: "www[.]"),
    ("link", _BARE, lambda host: host[0].replace(".", "[.]")),
)
