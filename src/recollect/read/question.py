"""Analyse a question by its words: which names it has, and which kind of answer it asks for."""

from __future__ import annotations

from collections.abc import Collection

from recollect.aio.erasable_cache import erasable_cache
from recollect.frozen_dataclass import frozen_dataclass
from recollect.lazy_pattern import lazy_pattern
from recollect.ledger.tokenizer import STOP_WORDS
from recollect.read.decide import decide

# Only the beginning of a pasted text is analysed.
_MAX_CHARS = 2_000

_BARE_WORD = lazy_pattern(r"[^\W_]+")
_NAME = lazy_pattern(r"[^\W\d_a-z][^\W\d_A-Z]+")
_SENTENCE_START = lazy_pattern(r"(?:^|[.!?:]\s+|\n)[\s\"'“(]*")
# These match lower-case text: ignoring case in the expression takes five times as long.
_WHEN = lazy_pattern(
    r"\b(?:when|what (?:date|day|month|year|time)|which (?:date|day|month|year)|how long|"
    r"how many (?:days|weeks|months|years)|wann|seit wann|quand|cuándo|quando|wanneer|kiedy|"
    r"когда)\b|什么时候|いつ|언제",
)
_COUNT = lazy_pattern(
    r"\b(?:how (?:many|much|old|far)|number of|price|cost|amount|wie ?viele?|combien|"
    r"cuánt[oa]s?|quant[oaie]s?|hoeveel|"
    r"ile|сколько)\b|多少|几个|いくつ|いくら|얼마|몇",
)
_TO_ASSISTANT = lazy_pattern(
    r"\b(?:you|your|du|dir|ihr|tu|te|vous|usted|tú|lei|voi|você|jij|je|ты|вы)\b|你|您|あなた|당신"
)
_ADVICE = lazy_pattern(
    r"\b(?:suggest\w*|recommend\w*|advi[cs]e|ideas?|tips|should i|could i|can i|how (?:do|can|should|would) i|"
    r"can you|could you|would you|help me|what (?:would|should|can)|which|show me|explain|write|plan\w*|"
    r"soll(?:te)? ich|empfiehl\w*|vorschl\w*|wie kann ich|kannst du|devrais-je|recommand\w*|conseil\w*|peux-tu|"
    r"pouvez-vous|debería|recomiend\w*|suger\w*|puedes|consigli\w*|puoi|posso|recomend\w*|"
    r"pode)\b|推荐|建议|おすすめ|추천",
)
_PERSONAL = lazy_pattern(
    r"\b(?:my|mine|our|ours|i|we|me|mein\w{0,2}|ich|wir|unser\w{0,2}|mon|ma|mes|je|nous|mi|mis|"
    r"yo|mio|mia|io|meu|minha|"
    r"eu|mijn|ik|мой|моя|я|мы)\b|我|私|나|저|내",
)
_BEFORE = lazy_pattern(
    r"\b(?:previous(?:ly)?|original(?:ly)?|initial(?:ly)?|before|used to|earlier|former(?:ly)?|began|at first|"
    r"früher|vorher|zuerst|ursprünglich|avant|d'abord|auparavant|antes|раньше|сначала)\b|以前|最初|예전",
)
_STATE = lazy_pattern(
    r"^\W*(?:(?:so|and|ok|hey|hi),? )?(?:how (?:many|much|long|often|old|far)|what(?:'s| is| are| time| day| date)|"
    r"when(?:'s| is| are| does| do)|where(?:'s| is| are| do| does)|who(?:'s| is| are)|which|"
    r"do i|am i|is my|is the|did i|"
    r"wie (?:viele?|lange|oft|heißt)|was ist|wann ist|wo |wer ist|combien|quel(?:le)? est|où|cuánt[oa]s?|cuál es|"
    r"qué |dónde|quant[oaie]|qual è|dove|какой|сколько|где)\b|^\W*what\b[^?]{0,40}\b(?:do|does|should|am|is|are)\b",
)


@frozen_dataclass
class QuestionAnalysis:
    """The question, the names in it, and the kinds of question it is."""

    text: str
    names: tuple[str, ...]
    asks_when: bool
    asks_count: bool
    is_to_assistant: bool
    asks_advice: bool
    is_personal: bool
    is_about_past: bool
    is_about_present: bool
    needs_no_memory: bool


def analyze_question(text: str) -> QuestionAnalysis:
    """Return the analysis of a question or message."""
    return _analyze_question(text[:_MAX_CHARS].replace("’", "'"))


# Several steps analyse the same question.
@erasable_cache(64)
def _analyze_question(text: str) -> QuestionAnalysis:
    lowered = text.lower()
    return QuestionAnalysis(
        text=text,
        names=tuple(_names(text)),
        asks_when=bool(_WHEN.search(lowered)),
        asks_count=bool(_COUNT.search(lowered)),
        is_to_assistant=bool(_TO_ASSISTANT.search(lowered)),
        asks_advice=bool(_ADVICE.search(lowered)),
        is_personal=bool(_PERSONAL.search(lowered)),
        is_about_past=bool(_BEFORE.search(lowered)),
        is_about_present=bool(_STATE.search(lowered)),
        needs_no_memory=not decide(text).search,
    )


def _names(text: str) -> list[str]:
    """Return the capitalised words that do not begin a sentence; most are names."""
    starts = {match.end() for match in _SENTENCE_START.finditer(text)}
    words = ((match.group(), match.start()) for match in _NAME.finditer(text))
    # The expression accepts letters of other alphabets in either case.
    return [word for word, start in words if word[0].isupper() and start not in starts]


def bare_words(text: str) -> set[str]:
    """Return the words of a text, folded for the comparison with names."""
    return set(_BARE_WORD.findall(text.casefold()))


def find_mentioned(text: str, names: Collection[str]) -> list[str]:
    """Return those of the folded names that occur in the text, in full or by the first name."""
    folded = f" {_bare(text.casefold())} "
    return [name for name in names if _mentions(folded, name)]


def without_names(text: str, names: Collection[str]) -> str:
    """Return the text without the words of these names; unchanged if nothing else would be left."""
    name_words = {word for name in names for word in _BARE_WORD.findall(name)}
    left = " ".join(word for word in text.split() if not _is_name_word(word, name_words))
    return left if left.strip() else text


def _is_name_word(word: str, name_words: Collection[str]) -> bool:
    bare = _BARE_WORD.findall(word.casefold())
    return bool(bare) and bare[0] in name_words and all(part in name_words or part == "s" for part in bare)


def _mentions(folded: str, name: str) -> bool:
    plain = _bare(name)
    first = plain.partition(" ")[0]
    # The names "Will" and "The Boss" do not occur in every question with "will" or "the".
    if first not in STOP_WORDS and len(first) > 2 and f" {first} " in folded:
        return True
    return bool(plain) and plain not in STOP_WORDS and f" {plain} " in folded


def _bare(text: str) -> str:
    return " ".join(_BARE_WORD.findall(text))
