"""Validate and normalise text."""

from __future__ import annotations

from collections.abc import Iterator

from recollect.errors import InvalidInput, InvalidText
from recollect.lazy_pattern import lazy_pattern

MAX_TEXT_BYTES = 1 << 20
MAX_ID_CHARS = 300

_UNSTORABLE = lazy_pattern("[\x00\ud800-\udfff]")
_CONTROL = lazy_pattern("[\x00-\x1f\x7f\x80-\x9f\u2028\u2029\ud800-\udfff]")


def validate_text(text: object, *, name: str = "content") -> str:
    """Return the text; raise InvalidText that says what is wrong with it and where."""
    if text is None:
        raise InvalidText(f"{name} is missing; it must be text")
    if not isinstance(text, str):
        raise InvalidText(f"{name} must be text, not {type(text).__name__}")
    if not text.strip():
        raise InvalidText(f"{name} is empty; give it at least one visible character")
    if not is_storable(text) and (bad := _UNSTORABLE.search(text)):
        kind = "a NUL character" if bad.group() == "\0" else "a lone surrogate (half of a character)"
        raise InvalidText(f"{name} holds {kind} at position {bad.start()}; remove it and try again")
    if excess := describe_text_excess(text):
        raise InvalidText(f"{name} is {excess}: split it into parts")
    return text


def describe_text_excess(text: str) -> str:
    """Describe how a text exceeds what is stored of one; empty if it does not."""
    # A character takes four bytes at most, so short texts need not be encoded to be measured.
    if len(text) * 4 <= MAX_TEXT_BYTES or (size := len(text.encode(errors="replace"))) <= MAX_TEXT_BYTES:
        return ""
    return f"{size:,} bytes; the limit is {MAX_TEXT_BYTES:,}"


def is_storable(text: str) -> bool:
    """Return whether every database can store the text."""
    # Faster than the expression, which takes milliseconds for a long text.
    if "\0" in text:
        return False
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def repair_text(text: str) -> str:
    """Return the text with unstorable characters replaced, cut to the limit; for what must not be refused."""
    text = text[:MAX_TEXT_BYTES]
    if not is_storable(text):
        text = _UNSTORABLE.sub("\ufffd", text)
    if len(text) * 4 > MAX_TEXT_BYTES and len(text.encode()) > MAX_TEXT_BYTES:
        text = text.encode()[:MAX_TEXT_BYTES].decode(errors="ignore")
    return text


def head_and_tail(text: str, chars: int) -> str:
    """Return the text, or the beginning and the end of one that is longer than `chars`."""
    return text if len(text) <= chars else f"{text[: chars // 2]}\n{text[-chars // 2 :]}"


_PIECE_CHARS = 1 << 14
_SPACE_END = lazy_pattern(r"\s(?!\s)")


def split_long_text(text: str) -> Iterator[str]:
    """Yield a text in pieces that end with whitespace, if there is any; between them a thread lets others run."""
    start = 0
    while len(text) - start > _PIECE_CHARS:
        space = _SPACE_END.search(text, start + _PIECE_CHARS, start + 2 * _PIECE_CHARS)
        end = space.end() if space else start + 2 * _PIECE_CHARS
        yield text[start:end]
        start = end
    yield text[start:] if start else text


def validate_id(value: object, *, name: str) -> str:
    """Return the id; raise InvalidInput for control characters, which could forge log lines and keys."""
    if not isinstance(value, str):
        raise InvalidInput(f"{name} must be text, not {type(value).__name__}")
    if len(value) > MAX_ID_CHARS:
        raise InvalidInput(f"{name} is {len(value)} characters long; the limit is {MAX_ID_CHARS}")
    bad = _CONTROL.search(value)
    if bad:
        raise InvalidInput(f"{name} holds a control character at position {bad.start()}; remove it")
    return value


_LINE_ENDS = "\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"
_LINE_END = lazy_pattern(f"\r\n?|[{_LINE_ENDS[1:]}]")
_SURROGATE = lazy_pattern("[\ud800-\udfff]")
# Never visible: controls, soft hyphens, direction marks, fillers, most variation selectors.
_HIDDEN = lazy_pattern(
    "[\x00-\x08\x0e-\x1b\x1f\x7f-\x84\x86-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200e\u200f"
    "\u202a-\u202e\u2060-\u206f\u3164\ufdd0-\ufdef\ufe00-\ufe0d\ufeff\uffa0\ufff0-\ufffb\ufffe\uffff"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0080-\U000e0fff]+"
)

# Letters affected by joiners: Arabic script, Syriac to N'Ko, scripts of India and South-East Asia,
# Mongolian.
_JOINING = (
    "\u0620-\u065f\u066e-\u06d3\u06d5\u06fa-\u07ff\u0840-\u08ff\u0900-\u0dff\u1000-\u109f\u1780-\u17ff\u1820-\u18aa"
)
# Scripts without spaces, in which a zero-width space marks the end of a word.
_SPACELESS = "\u0e00-\u0eff\u0f00-\u0fff\u1000-\u109f\u1780-\u17ff\u19e0-\u19ff"
_MONGOLIAN = "\u1820-\u18aa"
_EMOJI = (
    "#*0-9\u00a9\u00ae\u203c\u2049\u2122\u2139\u2190-\u21ff\u2300-\u23ff\u2460-\u24ff\u25a0-\u27bf\u2900-\u297f"
    "\u2b00-\u2bff\u3030\u303d\u3297\u3299\U0001f000-\U0001faff"
)
_PICTURE = "\u2190-\u21ff\u2300-\u23ff\u25a0-\u27bf\u2b00-\u2bff\U0001f000-\U0001faff"
# Hidden unless used properly: one at a time, right after the character it changes.
_CHANGING = "\u200b\u200c\u200d\ufe0e\ufe0f\u180b\u180c\u180d\u180f"
_OUT_OF_PLACE = lazy_pattern(
    f"\u200b(?:(?<![{_SPACELESS}]\u200b)|(?![{_SPACELESS}]))"
    f"|\u200c(?<![{_JOINING}]\u200c)"
    f"|\u200d(?:(?<![{_JOINING}{_PICTURE}\ufe0f]\u200d)|(?<=[{_PICTURE}\ufe0f]\u200d)(?![{_PICTURE}]))"
    f"|[\ufe0e\ufe0f](?<![{_EMOJI}].)"
    f"|[\u180b-\u180d\u180f](?<![{_MONGOLIAN}].)"
)
# Those of the hidden and changing characters that `str.isprintable` takes for printable.
_HIDDEN_PRINTABLE = "\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u3164\uffa0" + "".join(
    map(chr, [*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0)])
)
_TAG = lazy_pattern("[\U000e0000-\U000e007f]")
# Tags spell the flags of England, Scotland and Wales; anything else they spell is hidden.
_TAGS = lazy_pattern(
    "(?P<flag>\U0001f3f4\U000e0067\U000e0062"
    "(?:\U000e0065\U000e006e\U000e0067|\U000e0073\U000e0063\U000e0074|\U000e0077\U000e006c\U000e0073)\U000e007f)"
    "|[\U000e0000-\U000e007f]+"
)


def normalise_invisible(text: str) -> str:
    """Return the text without hidden characters, so that what is read is what is seen.

    Words split by hidden characters are joined. Joiners within emoji and within words of scripts that need them stay,
    as do flags. Every kind of line end becomes a newline; a lone surrogate becomes U+FFFD.
    """
    # An expression takes 25 ms for the longest text, and these checks two.
    is_printable = text.replace("\n", "").replace("\t", "").isprintable()
    if is_printable and (text.isascii() or not any(map(text.__contains__, _HIDDEN_PRINTABLE))):
        return text
    if any(map(text.__contains__, _LINE_ENDS)):
        text = _LINE_END.sub("\n", text)
    if not is_storable(text):
        text = _SURROGATE.sub("\ufffd", text)
    text = _HIDDEN.sub("", text)
    if text.isascii():
        return text
    if _TAG.search(text):
        text = _TAGS.sub(lambda tags: tags["flag"] or "", text)
    # A character is judged by the one before it, which may itself be removed.
    while any(map(text.__contains__, _CHANGING)) and (plain := _OUT_OF_PLACE.sub("", text)) != text:
        text = plain
    return text


def validate_visible_text(text: object, *, name: str = "content") -> str:
    """Return the text without invisible characters, or raise InvalidText, also if nothing visible is left."""
    checked = validate_text(text, name=name)
    plain = normalise_invisible(checked)
    return plain if plain == checked else validate_text(plain, name=name)
