"""Estimate how likely a message needs memory: a linear model over words, word n-grams and a few named features.

`evals/train_decide.py` trains it and writes `decide.npz`. No embedding is computed here: the weights of words that
the training messages do not have were derived from the embedding table when the model was trained.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from enum import StrEnum
from functools import cache
from math import exp, log1p, sqrt
from operator import mul
from pathlib import Path
from typing import TYPE_CHECKING

from recollect.aio.erasable_cache import erasable_cache
from recollect.frozen_dataclass import frozen_dataclass
from recollect.lazy_pattern import lazy_pattern
from recollect.ledger.tokenizer import STOP_WORDS
from recollect.models.linear_text import hash_words, tokenize
from recollect.read.multilingual_stopwords import split_words, stop_words_for
from recollect.text.small_talk import WORD, fold_text, head_and_tail, load_small_talk

if TYPE_CHECKING:
    from recollect.models.linear_text import TextInput


MODEL_FILE = Path(__file__).parent / "decide.npz"
OUTPUT = "search"

# The first buckets hold one weight for each word, the others the word n-grams of the training messages.
# Many more buckets than words: a name that shares the bucket of a word would get its weight.
WORD_BUCKETS = 1 << 17
NGRAM_BUCKETS = 1 << 16
MAX_NGRAM_WORDS = 3

NAMED_FEATURES = (
    "question_mark", "i_or_we", "me_or_us", "my_or_our", "you", "words", "log_words", "digits", "one_capital",
    "more_capitals", "opens_capital", "not_ascii", "few_words", "ten_words", "sixteen_words", "quotes_text",
    "possessive_s", "i_or_me_by_length", "no_content_word", "one_content_word", "content_share",
)  # fmt: skip
_SUBJECT = frozenset(["i", "we", "im", "ive"])
_OBJECT = frozenset(["me", "us"])
_POSSESSIVES = frozenset(["my", "mine", "our", "ours"])
_YOU = frozenset(["you", "your", "yours"])
_SENTENCE_MARKS = frozenset("?？.!,。")
_MAX_WORDS = 40


def estimate(text: str) -> float:
    """Return the probability that the message needs memory."""
    buckets, values = _features(text)
    sparse, dense, bias = _weights()
    # So few that plain sums are done before arrays are set up.
    hashed = sum(map(sparse.__getitem__, buckets)) / sqrt(len(buckets))
    logit = hashed + sum(map(mul, values, dense)) + bias
    return 1 / (1 + exp(-max(-30.0, min(30.0, logit))))


def text_features(text: str) -> TextInput:
    """Return the features of a message as training takes them."""
    import numpy as np

    from recollect.models.linear_text import TextInput

    buckets, values = _features(text)
    return TextInput(np.array(buckets, np.int64), np.array(values, np.float32))


def _features(text: str) -> tuple[list[int], list[float]]:
    """Return the buckets of a message's words and n-grams, and the values of NAMED_FEATURES."""
    # A lone surrogate is legal in a Python string and cannot be hashed.
    tokens = tokenize(text if text.isascii() else text.encode("utf-8", "ignore").decode("utf-8"))
    # A question is the same with and without its mark.
    bare = [token for token in tokens if token not in _SENTENCE_MARKS]
    hashes = hash_words(bare, MAX_NGRAM_WORDS)
    words = {code % WORD_BUCKETS for code in hashes[: len(bare) + 2]}
    ngrams = {WORD_BUCKETS + code % NGRAM_BUCKETS for code in hashes}
    return [*words, *ngrams], _named_values(text, tokens)


def _named_values(text: str, tokens: Sequence[str]) -> list[float]:
    """Return the values of NAMED_FEATURES."""
    distinct = set(tokens)
    spelled = text[:600].split()
    count = len(spelled)
    capitals = sum(word[0].isupper() and word.strip("?.,!'\"") != "I" for word in spelled[1:])
    content = sum(token.isalpha() and token not in STOP_WORDS for token in tokens)
    subject, object_ = not _SUBJECT.isdisjoint(distinct), not _OBJECT.isdisjoint(distinct)
    return [
        "?" in distinct or "？" in distinct,
        subject,
        object_,
        not _POSSESSIVES.isdisjoint(distinct),
        not _YOU.isdisjoint(distinct),
        min(count, _MAX_WORDS) / 10,
        log1p(count),
        any(token[0] == "0" for token in tokens),
        capitals == 1,
        capitals > 1,
        text[:1].isupper(),
        not text.isascii(),
        count <= 3,
        count >= 10,
        count >= 16,
        '"' in distinct or ":" in distinct,
        "'s" in text or "’s" in text,
        log1p(count) if subject or object_ else 0.0,
        content == 0,
        content == 1,
        content / max(1, len(tokens)),
    ]


@cache
def _weights() -> tuple[array[float], list[float], float]:
    """Return the weights of buckets and of named features, and the bias, as plain numbers."""
    import numpy as np

    from recollect.models.linear_text import load_model

    model = load_model(MODEL_FILE)
    sparse = array("f", np.ascontiguousarray(model.sparse[:, 0], np.float32).tobytes())
    return sparse, model.dense[:, 0].tolist(), float(model.bias[0])


# Skip messages that are less likely than this to need memory; 99 % of those that need it are searched under
# cross-validation (docs/evaluation.md).
MIN_LIKELIHOOD = 0.035
# Longer messages are always searched: what needs no memory is asked for in few words.
MAX_WORDS = 40

_OWN = frozenset(
    "my mine our ours myself ourselves mein meine meinen meinem meiner meines unser unsere unseren unserem "
    "unserer mon ma mes notre nos mi mis nuestro nuestra nuestros nuestras mio mia miei mie nostro nostra "
    "nostri nostre meu minha meus minhas nosso nossa mijn onze moj moja moje moim nasz nasza мои моя мое "
    "моего моеи моих наш наша наше benim bizim मेरा मेरी मेरे हमारा".split()
)
_OWN_PAST = lazy_pattern(
    r"\b(?:(?:did|have|had|was|were) (?:i|we)|(?:take|took) (?:me|us)"
    r"|(?:i|we) (?:was|had|said|told|asked|mentioned|prefer))\b"
)
_OWN_PARTS = ("我的", "我们的", "我家", "给我", "私の", "僕の", "俺の", "うちの", "내 ", "제 ", "나의", "우리 ")
# A capitalised word after one of these is more often a place or a language than a person.
_BEFORE_PLACES = frozenset("in near of into to from at".split())
_CAPITALISED = lazy_pattern(r"[^\W\d_a-z][^\W\d_A-Z]+")


class DecisionRule(StrEnum):
    """The rule that decided."""

    NO_WORDS = "nothing_said"
    SMALL_TALK = "small_talk"
    PERSONAL = "personal"
    CALLER_FACT = "caller_fact"
    CALLER_TOOL = "caller_tool"
    GENERAL_KNOWLEDGE = "general_knowledge"
    LONG = "long"
    DOUBT = "doubt"


@frozen_dataclass
class SearchDecision:
    """Whether to search, and why; `score` is the likelihood that memory is needed, 0 or 1 where a rule is certain."""

    search: bool
    rule: DecisionRule
    reason: str
    score: float = 0.0


def decide(text: str, *, is_fact: bool | None = None, requires_tool: bool | None = None) -> SearchDecision:
    """Decide whether memory should be searched for this message.

    `is_fact` and `requires_tool` are the caller's knowledge of it: True skips the message, False on either rules out
    that it is skipped as general knowledge or as a command.
    """
    return _decide(head_and_tail(text), is_fact, requires_tool)


# A recall decides, and the search that it starts decides once more.
@erasable_cache(64)
def _decide(text: str, is_fact: bool | None, requires_tool: bool | None) -> SearchDecision:
    return apply_rules(text, estimate, is_fact=is_fact, requires_tool=requires_tool)


def apply_rules(
    text: str,
    likelihood: Callable[[str], float],
    *,
    is_fact: bool | None = None,
    requires_tool: bool | None = None,
) -> SearchDecision:
    """Decide with any estimate of the likelihood; the training script passes models under cross-validation."""
    if is_fact:
        return SearchDecision(False, DecisionRule.CALLER_FACT, "the caller says it asks for a general fact")
    if requires_tool:
        return SearchDecision(False, DecisionRule.CALLER_TOOL, "the caller says a tool will answer")
    folded = fold_text(text)
    words = WORD.findall(folded)
    if not words:
        return SearchDecision(False, DecisionRule.NO_WORDS, "there are no words in it")
    if load_small_talk().is_all_of(words):
        return SearchDecision(
            False, DecisionRule.SMALL_TALK, "it is a greeting, thanks, a goodbye or a bare yes or no"
        )
    if not _OWN.isdisjoint(words) or _OWN_PAST.search(folded) or _contains_part(folded, _OWN_PARTS):
        return SearchDecision(
            True, DecisionRule.PERSONAL, "it is personal: it says 'my' or tells of the user's past", 1.0
        )
    if len(words) > MAX_WORDS:
        return SearchDecision(True, DecisionRule.LONG, f"it is {len(words)} words long", 1.0)
    score = likelihood(text)
    if score >= MIN_LIKELIHOOD:
        return SearchDecision(True, DecisionRule.DOUBT, f"{score:.2f} likely to need memory", score)
    # There are few training messages in other languages.
    if _is_foreign(text):
        return SearchDecision(True, DecisionRule.DOUBT, "it is in another language than English", score)
    if name := _lone_name(text):
        return SearchDecision(True, DecisionRule.DOUBT, f"it may be about a person: {name}", score)
    if is_fact is False or requires_tool is False:
        return SearchDecision(
            True, DecisionRule.DOUBT, "the caller says it is no general fact or needs no tool", score
        )
    reason = f"general knowledge or a command: {score:.2f} likely to need memory"
    return SearchDecision(False, DecisionRule.GENERAL_KNOWLEDGE, reason, score)


def _contains_part(folded: str, parts: tuple[str, ...]) -> bool:
    """Return whether a text without spaces between words contains one of the parts."""
    return not folded.isascii() and any(part in folded for part in parts)


def _lone_name(text: str) -> str:
    """Return a capitalised word that stands alone between words that are not, as a first name does; else empty."""
    spelled = text.split()
    bare = [word.strip(".,;:!?\"'()“”").removesuffix("'s").removesuffix("’s") for word in spelled]
    is_capital = [bool(_CAPITALISED.fullmatch(word)) and word[0].isupper() for word in bare]
    if sum(is_capital) * 2 > len(bare):
        return ""
    for at in range(1, len(bare)):
        if not is_capital[at] or spelled[at - 1][-1] in ".!?:" or bare[at - 1].lower() in _BEFORE_PLACES:
            continue
        is_alone = (at == 1 or not bare[at - 1][:1].isupper()) and (
            at + 1 == len(bare) or not bare[at + 1][:1].isupper()
        )
        if is_alone:
            return bare[at]
    return ""


def _is_foreign(text: str) -> bool:
    """Return whether the small words are of another language, and none is of English alone."""
    words = split_words(text)
    language, english = stop_words_for(words), stop_words_for([])
    if language is english:
        return any(not word.isascii() for word in words) and not any(word in english for word in words)
    return not any(word in english and word not in language for word in words)
