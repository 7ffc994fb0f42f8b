"""Remove invisible and dangerous parts of text before it enters a prompt."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from functools import cache

from recollect.frozen_dataclass import frozen_dataclass
from recollect.lazy_pattern import lazy_pattern

_LINE_END = lazy_pattern("\r\n?|[\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")
_LONE_SURROGATE = lazy_pattern("[\ud800-\udfff]")
# Controls, and what Unicode says may be left out when it cannot be shown: direction marks, zero widths, variation
# selectors, tags, fillers. Text is hidden in them; the cost is that some emoji come apart.
_INVISIBLE = lazy_pattern(
    "[\x00-\x08\x0e-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f"
    "\u202a-\u202e\u2060-\u206f\u3164\ufdd0-\ufdef\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\ufffe\uffff"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
# What chat templates use to say who speaks, and any tag or comment: a model that reads such a mark in a memory would
# leave the message, and a page that shows it would obey it.
_MARK = lazy_pattern(
    r"<(?=[|｜<!?]|/?[a-z][^<>=]*+[>=])"
    r"|\[(?=/?(?:INST|SYSTEM_PROMPT|TOOL_CALLS|TOOL_RESULTS|AVAILABLE_TOOLS|IMG)\])",
    re.IGNORECASE,
)
_CODE_FENCE = lazy_pattern("`{3,}|~{3,}")
_BLOCK_START = lazy_pattern(r"#{1,6}(?: |$)|>|[-+*](?: |$)|(?:-{3,}|={3,}|\*{3,}|_{3,})$")


def remove_invisible(text: str) -> str:
    """Return the text without invisible characters, with newlines as line ends and U+FFFD for broken characters."""
    if text.isascii() and text.isprintable():
        return text
    text = _LINE_END.sub("\n", text)
    text = _LONE_SURROGATE.sub("\ufffd", text)
    return _INVISIBLE.sub("", text)


def one_line(text: str) -> str:
    """Return the visible text on one line that starts no heading, list, quote, fence or turn.

    Any run of spaces and line ends is one space. Three or more backticks or tildes become two, a mark that would
    start a Markdown block gets a backslash before it, a tag or a mark of a chat template a space inside it.
    """
    line = " ".join(remove_invisible(text).split())
    line = _MARK.sub(lambda mark: mark[0] + " ", line)
    line = _CODE_FENCE.sub(lambda fence: fence[0][:2], line)
    return f"\\{line}" if _BLOCK_START.match(line) else line


# Nothing below can match a text without one of these.
_SUSPECT = lazy_pattern(r"[<\[:/\\&]|www\.", re.IGNORECASE)
_LOADING_TAGS = (
    "applet|area|audio|base|body|button|embed|form|frame|iframe|image|img|input|link|math|meta|object"
    "|picture|script|source|style|svg|track|use|video"
)
_TAG = lazy_pattern(rf"</?(?:a|{_LOADING_TAGS})(?=[\s/>])[^<>]*+>", re.IGNORECASE)
# A tag that nothing here ends: whatever follows in the prompt could. "<a" alone is a comparison more often.
_OPEN_TAG = lazy_pattern(rf"<(?=/?(?:{_LOADING_TAGS})(?:[\s/]|$)|/?a[\s/][^<>=]*+=)", re.IGNORECASE)
_ALT = lazy_pattern(r"""\balt\s*+=\s*+(?:"([^"]*+)"|'([^']*+)')""", re.IGNORECASE)
_TARGET = r"\((?:[^()]|\([^()]*+\))*+\)"
_IMAGE = lazy_pattern(rf"!\[([^\[\]]*+)\](?:{_TARGET}|\[[^\[\]]*+\])")
_LINK = lazy_pattern(rf"\[([^\[\]]*+)\]({_TARGET})")
_EXTERNAL = lazy_pattern(r"[:&\\]|//|www\.", re.IGNORECASE)
_DEFINITION = lazy_pattern(r"^( {0,3})\[([^\[\]\n]{1,200})\]:(?=[ \t]*\S)", re.MULTILINE)

# What a renderer reads as the character itself: where an address could be made of it, it must not stay hidden.
_ENTITY = lazy_pattern(
    r"&(?:#0*+([0-9]{1,3})(?![0-9]);?|#x0*+([0-9a-f]{1,2})(?![0-9a-f]);?|(colon|sol|bsol|period|tab|newline);)",
    re.IGNORECASE,
)
_NAMED = {"colon": ":", "sol": "/", "bsol": "\\", "period": ".", "tab": " ", "newline": " "}
_IN_ADDRESSES = lazy_pattern(r"[a-z0-9:/\\. ]", re.IGNORECASE)

_HTTP = lazy_pattern(r"http(?=s?:[^\s:])", re.IGNORECASE)
_OTHER_SCHEME = lazy_pattern(r"(?<!hxxp)(?<!hxxps):(?=[\\/]{2})", re.IGNORECASE)
_SCRIPT = lazy_pattern(
    r"(?<=\bjavascript):(?=\S)|(?<=\bvbscript):(?=\S)"
    r"|(?<=\bdata):(?=(?:[a-z0-9.+-]{1,60}/[a-z0-9.+-]{1,60})?(?:;[a-z0-9=.+-]{1,60}){0,4},)",
    re.IGNORECASE,
)
# The host of an address: after a scheme, or after // where markup would take it for one.
_HOST = lazy_pattern(r"""(?<=[:\]("'=<])([\\/]{2,})([^\s\\/?#"'<>()\[\]]{1,255})""")
# Alone, // starts an address too when more than a host follows.
_SLASHES = lazy_pattern(r"""(?<![\w:/\\])([\\/]{2,8}+)([^\s\\/?#"'<>()\[\]]{1,255}+)(?=[/?]\S)""")
_MAIL = lazy_pattern(r"(?<=\bmailto):(?=\S)", re.IGNORECASE)
_WWW = lazy_pattern(r"\bwww\.(?=\w)", re.IGNORECASE)
# An address without a scheme counts as one when it carries a query: that is how data leaves.
_BARE = lazy_pattern(r"(?<![\w@/.\\-])(?:[a-z0-9-]{1,63}\.){1,8}[a-z]{2,24}(?=/[^\s?]{0,512}\?\S)", re.IGNORECASE)


@frozen_dataclass
class Defanged:
    """Return the sanitised text, and what was neutralised: "html", "image", "link", "script"."""

    text: str
    kinds: frozenset[str] = frozenset()


def defang(text: str) -> Defanged:
    """Replace images by their text, and links by their words and an inactive address; other prose is unchanged.

    Call it on visible text (see `visible`): a zero-width character inside a scheme would hide it.
    """
    if not _SUSPECT.search(_fold(text)):
        return Defanged(text)
    text = _ENTITY.sub(_decode_entity, text)
    kinds: set[str] = set()
    folded = _fold(text)
    # Addresses last, when no markup is left that could vanish and join two halves of one.
    for kind, rule, harmless in (*_MARKUP, *_ADDRESSES):
        if (plain := _replace_matches(rule, harmless, text, folded)) != text:
            text, folded = plain, _fold(plain)
            kinds.add(kind)
    return Defanged(text, frozenset(kinds))


def _fold(text: str) -> str:
    return text if text.isascii() else text.translate(_lookalikes())


def _replace_matches(rule: re.Pattern[str], harmless: Callable[[re.Match[str]], str], text: str, folded: str) -> str:
    """Neutralise every match. Look-alike characters match too, and are kept where nothing matches."""
    parts, last = [], 0
    for match in rule.finditer(folded):
        new = harmless(match)
        if new != match[0]:
            parts += [text[last : match.start()], new]
            last = match.end()
    return "".join([*parts, text[last:]]) if parts else text


@cache
def _lookalikes() -> dict[int, str]:
    """Map characters that a model may read as ASCII, one to one so that positions stay the same."""
    fold = {code: unicodedata.normalize("NFKC", chr(code)) for span in _STYLED for code in range(*span)}
    fold = {code: plain for code, plain in fold.items() if len(plain) == 1 and plain.isascii()}
    return fold | dict.fromkeys(map(ord, "\u02d0\u2236\ua789\ufe55"), ":") | dict.fromkeys(map(ord, "⁄∕⧸"), "/")


# Full-width ASCII, mathematical letters, letters in circles.
_STYLED = ((0xFF01, 0xFF5F), (0x1D400, 0x1D800), (0x24B6, 0x24EA))


def _decode_entity(entity: re.Match[str]) -> str:
    """Return the character of an entity if addresses are made of such characters; else the entity."""
    decimal, hexadecimal, name = entity.groups()
    character = _NAMED[name.lower()] if name else chr(int(decimal) if decimal else int(hexadecimal, 16))
    # Within a scheme browsers pass over line ends and tabs.
    character = " " if character in "\t\n\r" else character
    return character if _IN_ADDRESSES.fullmatch(character) else entity[0]


def _break_entity(entity: re.Match[str]) -> str:
    """Return the text of an entity that was hidden by another one, neutralised."""
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
