"""Find credentials that are told in sentences: a trained linear model judges the words near a cue.

"The password? It's maple7.", "log in as anna with Tulip#5" and "mein Passwort ist Sommer19" have no form in common,
and "my password is wrong" differs from them by one word. So each word near a cue, such as a name for a password, gets
the probability of being a credential from its shape, the words around it and its place relative to the cue. The cues
are in secrets.toml; `python -m evals.train_credentials` trains the model.
"""

from __future__ import annotations

import math
import re
import tomllib
from array import array
from bisect import bisect_right
from collections.abc import Generator, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

from recollect.frozen_dataclass import frozen_dataclass
from recollect.lazy_pattern import lazy_pattern
from recollect.models.linear_text import load_model
from recollect.write.secret_rules import is_program_text

MODEL_FILE = Path(__file__).parent / "credentials.npz"
BUCKETS = WORD_BUCKETS = 1 << 15
OUTPUT = "credential"
# Chosen on the training data: a false alarm damages a memory, a miss stores a credential.
MIN_PROBABILITY = 0.5
_MIN_LOGIT = math.log(MIN_PROBABILITY / (1 - MIN_PROBABILITY))

_SPACELESS = "\u3000-\u30ff\u4e00-\u9fff\uac00-\ud7af\uff1a\uff0c"
_CHUNK = lazy_pattern(rf"[{_SPACELESS}]+|[^\s{_SPACELESS}]+")
_OPENING = "\"'“„«`(<[{「『*"
_CLOSING = ".,;:?)]}>\"'”“’»`*…」"
_SPLIT = lazy_pattern("[=:/|]")
# A secret that was redacted is no cue, and the cue before it is spent.
_COVER, _REDACTED = "█", "redacted"
_MARK = lazy_pattern(r"\[redacted: [^\]\n]{1,40}\]")
_CURRENCIES = "$€£¥"
_CLAUSE_END = frozenset(".,;!?\n)")
# The words on each side of a cue that may be a credential, and those that may tell whether one is.
_WORDS_BEFORE, _WORDS_AFTER, _CONTEXT_WORDS = 8, 12, 8
_MIN_CHARS, _MAX_CHARS = 3, 80
_PHRASE_STARTS, _MIN_PHRASE_WORDS, _MAX_PHRASE_WORDS = 5, 3, 10
_KINDS = {"pin": "PIN", "code": "recovery code"}
_CONNECTING = frozenset(":=/|>")
_STRONG = frozenset(["mixed", "symbol", "camel"])
_PLAIN = frozenset(["lower", "capital", "upper", "letters", "hyphens"])
# "Tulip#5" has the form Aa#0.
_FORMS = {
    code: "0" if chr(code).isdigit() else "a" if chr(code).islower() else "A" if chr(code).isupper() else "#"
    for code in range(33, 127)
}
_REPEATED = lazy_pattern(r"(.)\1+")
_PIN = lazy_pattern(r"(?:^|[_-])(?:pin|puk|cvv2?|cvc2?)(?:$|[-_'’]|code|number|nummer|s$)|пин|暗証")


@dataclass(slots=True)
class Token:
    """A word: its place, its lower-case form, the mark before it, and whether a clause ends after it."""

    start: int
    end: int
    word: str
    mark: str
    is_quoted: bool
    ends_clause: bool
    shape: str
    form: str
    asks: bool = False


@frozen_dataclass
class Cue:
    """A cue: its kind, and its first and last token."""

    kind: str
    first: int
    last: int


@frozen_dataclass
class Candidate:
    """One or more tokens that may be a credential, and its features."""

    start: int
    end: int
    first: int
    last: int
    kind: str
    features: tuple[str, ...]
    # A plain word, whose meaning counts.
    word: str = ""


class _Context(NamedTuple):
    """The nearest cues before and after a word, and how it is connected with them."""

    before: Cue | None
    after: Cue | None
    relation: str


def has_cue(lower: str) -> bool:
    """Return whether a lower-case text has a cue."""
    return any(map(lower.__contains__, _all_cues()))


def find_credentials(text: str) -> Generator[None, None, list[tuple[int, int, str]]]:
    """Return the spans and kinds of credentials; yields after each small step."""
    tokens, candidates = yield from find_candidates(text)
    accepted: dict[int, Candidate] = {}
    rated: list[tuple[float, Candidate]] = []
    for each in candidates:
        rated.append((_logit(each), each))
        yield
    for logit, candidate in sorted(rated, key=lambda pair: (pair[1].first - pair[1].last, -pair[0])):
        places = range(candidate.first, candidate.last + 1)
        if logit >= _MIN_LOGIT and not any(place in accepted for place in places):
            accepted.update(dict.fromkeys(places, candidate))
    spans: list[tuple[int, int, str]] = []
    for candidate in dict.fromkeys(accepted.values()):
        spans.append((candidate.start, candidate.end, candidate.kind))
        spans += _similar_after(candidate, tokens, accepted)
    return spans


def _similar_after(
    candidate: Candidate, tokens: Sequence[Token], accepted: Mapping[int, Candidate]
) -> Iterator[tuple[int, int, str]]:
    """Yield the rest of a list of codes: words of the same length that mix or consist of digits."""
    first = tokens[candidate.first]
    if candidate.first != candidate.last or first.shape not in ("number", "mixed") or candidate.kind == "PIN":
        return
    for token in tokens[candidate.last + 1 : candidate.last + 20]:
        if token.shape in ("number", "mixed") and token.end - token.start == first.end - first.start:
            yield token.start, token.end, candidate.kind
        elif token.word not in ("and", "und", "y", "et", "e"):
            return


def feature_buckets(candidate: Candidate) -> set[int]:
    """Return the buckets of a candidate's features; plain words have buckets of their own."""
    buckets = {crc32(each.encode("utf-8", "replace")) % BUCKETS for each in candidate.features}
    if candidate.word:
        buckets.add(BUCKETS + word_bucket(candidate.word))
    return buckets


def _logit(candidate: Candidate) -> float:
    # For the few candidates of a message, numpy would take longer than all other steps together.
    weights, bias = _weights()
    buckets = feature_buckets(candidate)
    return bias + sum(map(weights.__getitem__, buckets)) / math.sqrt(len(buckets))


def word_bucket(word: str) -> int:
    """Return the bucket of a plain word, whose weight comes from its embedding."""
    return crc32(word.encode("utf-8", "replace")) % WORD_BUCKETS


def find_candidates(text: str) -> Generator[None, None, tuple[list[Token], list[Candidate]]]:
    """Return the tokens of a text, and the candidates near cues with their features; yields after each small step."""
    text = _MARK.sub(lambda mark: _COVER * len(mark[0]), text)
    # Its lower-case form is longer, which would shift all positions after it.
    lower = text.replace("İ", "I").lower()
    if not has_cue(lower):
        return [], []
    tokens = _tokenize(text)
    yield
    cues = _find_cues(lower, tokens)
    yield
    inside = {
        place for cue in cues for place in range(cue.first, cue.last + 1) if tokens[place].mark not in ("/", ":", "=")
    }
    ends = {cue.last for cue in cues}
    candidates: dict[tuple[int, int], Candidate] = {}
    for cue in cues:
        near = range(max(0, cue.first - _WORDS_BEFORE), min(len(tokens), cue.last + 1 + _WORDS_AFTER))
        for place in near:
            token = tokens[place]
            if (place, place) in candidates or place in inside or not _may_be_connected(tokens, place, ends):
                continue
            if not _may_be_credential(text, token, cue):
                continue
            context = _context(tokens, cues, place)
            # Without a connection only a word that cannot be anything else counts.
            may_stand_alone = token.shape in _STRONG and cue.kind in ("password", "short", "creds")
            if context.relation not in ("none", "spent") or (may_stand_alone and context.relation == "none"):
                candidates[place, place] = _word_candidate(tokens, place, context)
        if cue.kind in ("password", "vague", "short"):
            for first, last in _phrases(tokens, cue.last + 1):
                candidates.setdefault((first, last), _phrase_candidate(tokens, cue, first, last))
        yield
    return tokens, list(candidates.values())


def _may_be_connected(tokens: Sequence[Token], place: int, ends: Set[int]) -> bool:
    """Return whether a word can be a candidate at all: a quick check, since most words near a cue cannot."""
    token = tokens[place]
    if token.shape in _STRONG or token.mark in _CONNECTING or place - 1 in ends:
        return True
    return _word_at(tokens, place - 1) in _connecting_words() or _word_at(tokens, place + 1) in _links()


def _may_be_credential(text: str, token: Token, cue: Cue) -> bool:
    size = token.end - token.start
    if not _MIN_CHARS <= size <= _MAX_CHARS or token.shape == _REDACTED or text[token.start] in _CURRENCIES:
        return False
    if is_program_text(text[token.start : token.end]):
        return False
    if cue.kind == "pin":
        return token.shape == "number" and size <= 8
    if cue.kind == "code":
        return token.shape in ("number", "digits", "mixed", "upper")
    if cue.kind in ("login", "creds", "vague"):
        return token.shape in _STRONG or token.mark in ("/", ":", "=", "|") or token.ends_clause
    return True


def _tokenize(text: str) -> list[Token]:
    tokens: list[Token] = []
    last_end = 0
    for match in _CHUNK.finditer(text):
        chunk = match[0]
        core = chunk.lstrip(_OPENING)
        start = match.start() + len(chunk) - len(core)
        core = core.rstrip(_CLOSING)
        end = start + len(core)
        if _COVER in core:
            tokens.append(Token(start, end, "", "", False, False, _REDACTED, ""))
            last_end = end
            continue
        is_word = core.isalnum()
        if not is_word and not any(map(str.isalnum, core)):
            # A lonely "/" or "->" is the mark before the next word.
            continue
        gap, after = text[last_end:start], text[end : end + 2]
        mark = "" if gap == " " else _mark(gap)
        ends = (
            end >= len(text) or after[:1] in _CLAUSE_END or (after[:1] in _CLOSING and after[1:] in ("", " ", "\n"))
        )
        ends = ends or core[-1] == "!"
        is_quoted = start > 0 and text[start - 1] in "\"'“„«`「『"
        may_split = not is_word and "//" not in core and core[0] not in "/\\"
        split = _SPLIT.search(core, 1, len(core) - _MIN_CHARS + 1) if may_split else None
        if split and (name := core[: split.start()]).replace("-", "").replace("_", "").isalnum():
            middle = start + split.end()
            while middle < end and text[middle] in "=>\"'“`:":
                middle += 1
            tokens.append(Token(start, start + split.start(), name.lower(), mark, False, False, _shape(name), ""))
            core, mark, start = text[middle:end], split[0], middle
            if not core:
                continue
        word, shape = core.lower().rstrip("!"), _shape(core.rstrip("!"))
        form = _REPEATED.sub(r"\1", core.translate(_FORMS))[:8] if shape in _STRONG else ""
        tokens.append(Token(start, end, word, mark, is_quoted, ends, shape, form, "?" in after))
        last_end = end
    return tokens


def _mark(gap: str) -> str:
    """Return the punctuation before a word that matters most."""
    for mark in "=：:/|→>?\n.,;(-–":
        if mark in gap:
            return ":" if mark == "：" else mark
    return ""


def _shape(word: str) -> str:
    if word.isalpha():
        if not word.isascii():
            return "letters"
        if word.islower():
            return "lower"
        if word.isupper():
            return "upper"
        return "capital" if word[1:].islower() else "camel"
    has_digit, has_letter = any(map(str.isdigit, word)), any(map(str.isalpha, word))
    if has_digit and has_letter:
        return "mixed"
    if has_digit:
        return "number" if word.isdigit() else "digits"
    return "hyphens" if all(part.isalpha() for part in re.split("[-'’_.]", word)) else "symbol"


def _find_cues(lower: str, tokens: Sequence[Token]) -> list[Cue]:
    starts = [token.start for token in tokens]
    cues: list[Cue] = []
    for cue in filter(lower.__contains__, _all_cues()):
        at = lower.find(cue)
        while at >= 0:
            first = max(0, bisect_right(starts, at) - 1)
            last = max(first, bisect_right(starts, at + len(cue.rstrip()) - 1) - 1)
            token = tokens[first] if tokens else None
            cues += [Cue(kind, first, last) for kind in _all_cues()[cue] if _is_cue(kind, cue, token)]
            at = lower.find(cue, at + len(cue))
    return sorted(set(cues), key=attrgetter("first", "last", "kind"))


def _is_cue(kind: str, cue: str, token: Token | None) -> bool:
    if token is None:
        return False
    if kind == "short":
        return token.word in (cue, f"{cue}s", f"{cue}'s")
    if kind == "pin":
        return " " in cue or _PIN.search(token.word) is not None
    return True


def _word_candidate(tokens: Sequence[Token], place: int, context: _Context) -> Candidate:
    token = tokens[place]
    is_plain = token.shape in _PLAIN
    shape = f"number{min(9, token.end - token.start)}" if token.shape == "number" else token.shape
    strength = "strong" if token.shape in _STRONG else token.shape
    previous, before_that = _word_at(tokens, place - 1), _word_at(tokens, place - 2)
    following = "." if token.ends_clause else _word_at(tokens, place + 1)
    rest = _words_to_clause_end(tokens, place)
    before, after, relation = context.before, context.after, context.relation
    nearest = before or after
    kind = nearest.kind if nearest else "password"
    features = [
        "bias",
        f"s:{shape}",
        f"l:{min(12, token.end - token.start)}|{strength}",
        f"f:{token.form}",
        f"f:{token.form}|{relation}",
        f"m:{token.mark}|{shape}",
        f"q:{token.is_quoted}|{strength}|{relation}",
        f"r:{relation}|{shape}",
        f"r:{relation}|{kind}",
        f"r:{relation}|{kind}|{strength}",
        f"r:{relation}|{rest}|{strength}",
        f"r:{relation}|{kind}|{bool(rest)}|{strength}",
        f"r:{relation}|{following}|{strength}",
        f"p:{previous}|{strength}",
        f"p:{previous}|{before_that}|{strength}",
        f"n:{following}|{strength}",
        f"e:{rest}|{strength}",
        f"?:{tokens[_clause_end(tokens, place)].asks}|{strength}",
    ]
    if is_plain:
        features += [
            f"w:{token.word}",
            f"x:{token.word[-3:]}",
            f"x:{token.word[-2:]}",
            f"x:{token.word[-3:]}|{relation}",
        ]
    if before:
        path = [each.word if each.shape not in _STRONG else "*" for each in tokens[before.last + 1 : place]]
        features += [
            f"b:{kind}|{min(8, len(path))}|{strength}",
            f"b:{' '.join(path[-3:])}|{strength}",
            f"b:{tokens[before.last].word}|{relation}|{strength}",
            f"bf:{path[0] if path else ''}|{strength}|{relation}",
        ]
    if after:
        path = [each.word for each in tokens[place + 1 : after.first]]
        features += [
            f"a:{after.kind}|{min(8, len(path))}|{strength}",
            f"a:{' '.join(path[:3])}|{strength}|{bool(before)}",
            f"an:{_word_at(tokens, after.last + 1)}|{strength}|{relation}",
        ]
    around = tokens[max(0, place - _CONTEXT_WORDS) : place + _CONTEXT_WORDS]
    features += [f"c:{each.word}|{strength}" for each in around if each is not token]
    word = token.word if is_plain else ""
    return Candidate(token.start, token.end, place, place, _KINDS.get(kind, "password"), tuple(features), word)


def _context(tokens: Sequence[Token], cues: Sequence[Cue], place: int) -> _Context:
    next_cue = bisect_right(cues, place, key=attrgetter("first"))
    before = next((cues[at] for at in range(next_cue - 1, -1, -1) if cues[at].last < place), None)
    after = cues[next_cue] if next_cue < len(cues) else None
    return _Context(before, after, _relation(tokens, before, after, place))


def _relation(tokens: Sequence[Token], before: Cue | None, after: Cue | None, place: int) -> str:
    """Return how a word is connected with the nearest cue, as far as that can be told without knowing the words."""
    token = tokens[place]
    if before:
        between = tokens[before.last : place]
        if _REDACTED in [each.shape for each in between]:
            return "spent"
        is_broken = True in [each.ends_clause for each in between]
        size, last = len(between) - 1, between[-1].word
        if token.mark in _CONNECTING:
            return f"mark{min(2, size)}{is_broken}"
        if size == 0:
            return f"next{is_broken}"
        if last in _links():
            return f"link{min(3, size)}{is_broken}"
        if last in _joins():
            return f"join{is_broken}"
    if after:
        count = after.first - place - 1
        if 0 < count <= 4 and not token.ends_clause and tokens[place + 1].word in _links():
            return f"before{min(2, count)}"
    return "none"


def _clause_end(tokens: Sequence[Token], place: int) -> int:
    return min(len(tokens) - 1, place + _words_to_clause_end(tokens, place))


def _phrases(tokens: Sequence[Token], start: int) -> Iterator[tuple[int, int]]:
    """Yield the sequences of plain words that end with a clause, or that are quoted."""
    for first in range(start, min(start + _PHRASE_STARTS, len(tokens))):
        last = first
        is_quoted = tokens[first].is_quoted
        while last < len(tokens) and (is_quoted or tokens[last].shape in ("lower", "capital", "letters", "hyphens")):
            if tokens[last].ends_clause or last - first >= _MAX_PHRASE_WORDS:
                break
            last += 1
        if last >= len(tokens) or not tokens[last].ends_clause or tokens[last].shape == _REDACTED:
            continue
        count = last - first + 1
        if count >= (2 if is_quoted else _MIN_PHRASE_WORDS) and count <= _MAX_PHRASE_WORDS:
            yield first, last


def _phrase_candidate(tokens: Sequence[Token], cue: Cue, first: int, last: int) -> Candidate:
    words = [token.word for token in tokens[first : last + 1]]
    previous, mark, is_quoted = _word_at(tokens, first - 1), tokens[first].mark, tokens[first].is_quoted
    count = f"{min(8, len(words))}|{is_quoted}"
    name = tokens[cue.last].word
    features = [
        "Bias",
        f"N:{count}",
        f"M:{mark}|{is_quoted}",
        f"V:{previous}|{is_quoted}",
        f"F:{words[0]}",
        f"D:{first - cue.last}",
        f"C:{cue.kind}|{is_quoted}",
        f"CW:{'phrase' in name or 'frase' in name}|{is_quoted}",
        f"VM:{previous}|{mark}",
        *(f"W:{word}" for word in words),
        *(f"X:{word[-3:]}" for word in words),
        f"Y:{min(map(len, words))}",
    ]
    return Candidate(tokens[first].start, tokens[last].end, first, last, "password", tuple(features))


def _word_at(tokens: Sequence[Token], place: int) -> str:
    return tokens[place].word if 0 <= place < len(tokens) else "\x02"


def _words_to_clause_end(tokens: Sequence[Token], place: int) -> int:
    for count in range(6):
        if place + count >= len(tokens) or tokens[place + count].ends_clause:
            return count
    return 6


@cache
def _tables() -> Mapping[str, Mapping[str, Sequence[str]]]:
    return tomllib.loads(Path(__file__).with_name("secrets.toml").read_text(encoding="utf-8"))


@cache
def _all_cues() -> Mapping[str, Sequence[str]]:
    """Return the kinds of each cue."""
    kinds: dict[str, list[str]] = {}
    for kind, cues in _tables()["cues"].items():
        for cue in cues:
            kinds.setdefault(cue, []).append(kind)
    return kinds


@cache
def _links() -> frozenset[str]:
    return frozenset(_tables()["relations"]["links"])


@cache
def _joins() -> frozenset[str]:
    return frozenset(_tables()["relations"]["joins"])


@cache
def _connecting_words() -> frozenset[str]:
    return _links() | _joins()


@cache
def _weights() -> tuple[array[float], float]:
    """Return the weight of each bucket, and the bias."""
    model = load_model(MODEL_FILE)
    return array("d", model.sparse[:, 0].tolist()), float(model.bias[0])
