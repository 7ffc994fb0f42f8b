"""Split text into search terms.

Words are compared without case or accents, English ones by their stem. Scripts without spaces between words are split
into overlapping pairs of characters. Numbers keep their value: 10,000 is 10000.

A name made of several words has further terms, so that it is found as it is spelled, by its parts, and in another
spelling: `getUserById`, `get_user_by_id` and `get-user-by-id` share one term, and `E501` has a term of its own.
"""

from __future__ import annotations

import unicodedata

import Stemmer

from recollect.aio.erasable_cache import erasable_cache
from recollect.lazy_pattern import lazy_pattern
from recollect.model.text import split_long_text
from recollect.models.traits import TRAITS_VERSION

# Raise it when terms change: a ledger made with another version rebuilds its full text when opened.
TERMS_VERSION = 3
# Terms also depend on Unicode's tables and on the stemmer. SQLite removes a row only by the words it was
# indexed under, so a ledger made with other ones is rebuilt too. Traits are recomputed with them.
TERMS_RULES = f"{TERMS_VERSION}/{unicodedata.unidata_version}/{Stemmer.version()}/{TRAITS_VERSION}"
# BM25 parameters: saturation of repeated terms, and penalty for long texts.
K1 = 1.2
B = 0.75

# Of a longer text the beginning is indexed: one write must not keep the others waiting.
MAX_CHARS = 1 << 16
MAX_TERMS = 10_000
MAX_QUERY_TERMS = 64
MAX_TERM_CHARS = 64

# Indic and South-East Asian vowel signs are marks, not letters, yet part of the word.
_SIGNS = "\u0900-\u109f\u1780-\u17ff"
_WORD = lazy_pattern(rf"\d+(?:[.,]\d+)*|[^\W\d_][^\W\d_{_SIGNS}]*(?:[{_SIGNS}]+|['\u2019]?[^\W\d_]+)*")
_SPACELESS = lazy_pattern(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3\uf900-\ufaff"
    "\U00020000-\U0003134f]+"
)
# Accents of Latin, Greek and Cyrillic, points of Hebrew and Arabic: written or not, the word is the same.
_ACCENTS = lazy_pattern("[\u0300-\u036f\u0591-\u05c7\u064b-\u065f\u0670]+")
_APOSTROPHE = lazy_pattern("['\u2019]")
_ASCII_WORD = lazy_pattern("[a-z]+")
# A name that may be compound: words joined by marks, or one word with a capital or a digit in it.
_NAME = lazy_pattern(
    r"[A-Za-z0-9]+(?:(?:_{1,2}|_{0,2}[.-]_{0,2})[A-Za-z0-9]+)+"
    r"|[A-Za-z]+[A-Z0-9][A-Za-z0-9]*|[0-9]+[A-Za-z][A-Za-z0-9]*"
)
_NAME_SIGN = lazy_pattern(
    r"[A-Za-z0-9][_.-]{1,5}[A-Za-z0-9]|[a-z][A-Z0-9]|[A-Z][A-Z0-9][a-z]|[A-Z][0-9]|[0-9][A-Za-z]"
)
# The parts of camelCase, with acronyms: HTTPServer, userIDs.
_HUMP = lazy_pattern("[A-Z]{2,}s?(?![a-z])|[A-Z]?[a-z]+|[A-Z]")
_LETTERS = lazy_pattern("[A-Za-z]+")
_NAME_WORD = lazy_pattern("[A-Za-z0-9]+")
# Marks that join words; a point between digits stays: v2.3.1.
_JOINT = lazy_pattern(r"[_-]|(?<![0-9])\.|\.(?![0-9])")
_VERSION = lazy_pattern(r"([0-9]+\.[0-9]+)(?:\.[0-9]+)+")
# A word with more parts than this is an encoded value.
_MAX_HUMPS = 8
# Without the stemmer's own cache, which erasure could not clear.
_stemmer = Stemmer.Stemmer("english", 0)

STOP_WORDS = frozenset(
    """a an and any are as at be been but by can could d did do does doing for from had has have he her hers him
    his how i if in into is it its just ll m me my of on or our ours re s she should so t than that the their
    theirs them then there these they this those to too us ve was we were what when where which who whom whose
    why will with would you your yours about also am some such very don doesn didn isn aren wasn weren won
    wouldn couldn shouldn hasn haven hadn ain""".split()
)


def terms_of(text: str) -> list[str]:
    """Return the terms of a text in order, with repetitions, without stop words."""
    terms: list[str] = []
    for piece in split_long_text(text[:MAX_CHARS]):
        for word in _WORD.findall(_plain(piece)):
            # Very long runs are not cached: as keys they would cost more than they save.
            terms += _terms_of_word(word) if len(word) <= MAX_TERM_CHARS else _terms_of_word.__wrapped__(word)
        terms += compound_terms(piece)
        if len(terms) >= MAX_TERMS:
            break
    return terms[:MAX_TERMS]


def compound_terms(text: str) -> list[str]:
    """Return the further terms of the compound names in a text: each in one word, and the parts of camelCase."""
    terms: list[str] = []
    if not text.isascii():
        text = _ACCENTS.sub("", unicodedata.normalize("NFKD", text))
    if not _NAME_SIGN.search(text):
        return terms
    for name in _NAME.findall(text):
        terms += _terms_of_name(name) if len(name) <= MAX_TERM_CHARS else ()
        if len(terms) >= MAX_TERMS:
            break
    return terms


def query_terms(text: str) -> list[str]:
    """Return the distinct terms of a query in order, up to a limit."""
    return list(dict.fromkeys(terms_of(text)))[:MAX_QUERY_TERMS]


def spelling_terms(text: str) -> frozenset[str]:
    """Return the terms of a query that only repeat others in one word; without a match they mean nothing."""
    return frozenset(compound_terms(text))


def _plain(text: str) -> str:
    """Return the text in lower case, with compatibility forms folded and accents dropped."""
    if text.isascii():
        return text.lower()
    # A compatibility form such as ℡ has no case until it is decomposed.
    apart = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", text).casefold())
    bare = _ACCENTS.sub("", apart)
    return unicodedata.normalize("NFC", bare)


@erasable_cache(65_536)
def _terms_of_word(word: str) -> tuple[str, ...]:
    if word[0].isdigit():
        return (word.replace(",", "")[:MAX_TERM_CHARS],)
    if _ASCII_WORD.fullmatch(word):
        return () if word in STOP_WORDS else (_stemmer.stemWord(word)[:MAX_TERM_CHARS],)
    parts = _APOSTROPHE.split(word)
    if len(parts) > 1:
        # "user's" is about the user; single letters after an apostrophe are dropped.
        return tuple(term for part in parts if len(part) > 1 for term in _terms_of_word(part))
    if _SPACELESS.search(word):
        return tuple(_pairs(word))
    return (word[:MAX_TERM_CHARS],)


@erasable_cache(65_536)
def _terms_of_name(name: str) -> tuple[str, ...]:
    # Letters alone and digits alone are terms already.
    mixed = (word for word in _NAME_WORD.findall(name) if not word.isalpha() and not word.isdigit())
    joined = dict.fromkeys((_JOINT.sub("", name), *mixed))
    terms = [term for word in joined if word != name or not word.isalpha() for term in _joined_term(word.lower())]
    for letters in _LETTERS.findall(name):
        humps = _HUMP.findall(letters)
        if 1 < len(humps) <= _MAX_HUMPS:
            terms += [term for hump in humps if len(hump) > 1 for term in _terms_of_word(hump.lower())]
    return (*terms, *(version[1] for version in _VERSION.finditer(name)))


def _joined_term(word: str) -> tuple[str, ...]:
    """Return the term of a word of letters and digits; numbers are terms already."""
    if word.isalpha():
        return _terms_of_word(word)
    return (word,) if _LETTERS.search(word) else ()


def _pairs(word: str) -> list[str]:
    """Return overlapping pairs of spaceless runs, and the parts around them unchanged."""
    terms: list[str] = []
    end = 0
    for run in _SPACELESS.finditer(word):
        if run.start() > end:
            terms.append(word[end : run.start()][:MAX_TERM_CHARS])
        chars = run.group()
        terms += [chars[i : i + 2] for i in range(len(chars) - 1)] or [chars]
        end = run.end()
    if end < len(word):
        terms.append(word[end:][:MAX_TERM_CHARS])
    return terms
