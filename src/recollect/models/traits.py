"""Traits of a text that are computed once, stored with each memory, and used in ranking."""

from __future__ import annotations

from enum import IntFlag

from recollect.lazy_pattern import lazy_pattern
from recollect.model.memory import QUOTES_MEMORY, Category, MemoryRecord
from recollect.models.instruction_model import has_instruction

# Raise it when a rule here changes: a ledger made with other rules recomputes its traits when opened.
TRAITS_VERSION = 3

_MAX_WORDS = 0xFFFF
_WORDS_SHIFT = 16
# Rules look at the beginning and the end of a text only.
_HEAD, _TAIL = 4_000, 200
# Names are compared up to this length.
_NAME_CHARS = 100


class Trait(IntFlag):
    """One trait."""

    NONE = 0
    TURN = 1
    USER = 2
    ASSISTANT = 4
    ASKS = 8
    TELLS_TIME = 16
    COUNTS = 32
    FIRST_PERSON = 64
    INSTRUCTION = 128
    PREFERS = 256
    QUOTES_MEMORY = 512


# These match lower-case text: ignoring case in the expression takes five times as long.
_TIME = lazy_pattern(
    r"\b(?:yesterday|today|tomorrow|tonight|last|next|ago|weeks?|weekend|months?|years?|"
    r"recently|morning|evening|since|"
    r"(?:mon|tues|wednes|thurs|fri|satur|sun)day|january|february|march|april|june|july|august|september|october|"
    r"november|december|gestern|heute|morgen|letzte[nrs]?|nächste[nrs]?|woche|monat|jahr|hier|demain|semaine|"
    r"dernière?|mois|année|ayer|hoy|mañana|semana|pasad[oa]|mes|año|ieri|oggi|domani|settimana|scors[oa]|ontem|hoje|"
    r"(?:19|20)\d\d)\b|昨日|今日|明日|先週|来週|昨天|今天|明天|上周|下周|어제|오늘|내일",
)
_FIRST_PERSON = lazy_pattern(
    r"\b(?:i|i'm|i've|i'd|i'll|my|me|mine|myself|we|we're|we've|our|ours|us|ich|mein\w{0,2}|mir|"
    r"mich|wir|unser\w{0,2}|"
    r"je|j'ai|mon|ma|mes|nous|notre|nos|yo|mi|mis|nosotr[oa]s|nuestr[oa]s?|io|mio|mia|miei|noi|nostr[oaie]|eu|meu|"
    r"minha|nós|nosso|nossa|ik|mijn|wij|ons|onze|я|мой|моя|мне|меня|мы|наш)\b|我|私|僕|俺|저는|나는|제가|내가",
)
# The plainest standing instructions; those in other words are left to the model.
_INSTRUCTION = lazy_pattern(
    r"^\W{0,3}(?:please |bitte |por favor,? |s'il (?:te|vous) plaît,? )?(?:always|never|from now on|going forward|"
    r"in (?:the )?future|whenever|every time|each time|make sure|remember (?:to|that)|do not|don't|"
    r"when(?:ever)? i ask|immer|niemals|nie|ab (?:jetzt|sofort)|von nun an|künftig|toujours|"
    r"jamais|ne jamais|désormais|dorénavant|"
    r"à partir de maintenant|siempre|nunca|de ahora en adelante|a partir de ahora|sempre|mai|d'ora in poi|"
    r"a partir de agora|de agora em diante|altijd|nooit|vanaf nu|zawsze|nigdy|od teraz|всегда|"
    r"никогда|отныне|впредь)\b"
    r"|\b(?:from now on|going forward|de ahora en adelante|à partir de maintenant|ab jetzt|von nun an)\b"
    r"|^(?:总是|永远|从现在起|以后|いつも|必ず|今後|これから|항상|앞으로)",
)
_PREFERS = lazy_pattern(
    r"\b(?:prefer(?:s|red|ence|ences)?|favou?rites?|rather than|instead of|"
    r"i (?:really )?(?:like|love|enjoy|hate|dislike)|"
    r"i'm (?:not )?(?:a fan of|into|fond of)|i (?:can't|cannot) stand|allergic|i tend to|i usually|bevorzuge|lieber|"
    r"lieblings\w+|am liebsten|ich mag|je préfère|préférée?s?|j'aime|j'adore|je déteste|prefiero|favorit[oa]s?|"
    r"me gusta|me encanta|odio|preferisco|preferit[oa]|mi piace|adoro|prefiro|gosto de|liever|ik hou van|wolę|lubię|"
    r"предпочитаю|люблю|ненавижу)\b|喜欢|最爱|好きな|が好き|좋아[하해했]",
)
_BARE_WORD = lazy_pattern(r"[^\W_]+")
_DIGIT = lazy_pattern(r"\d")
_RULES = (
    (Trait.TELLS_TIME, _TIME),
    (Trait.FIRST_PERSON, _FIRST_PERSON),
    (Trait.INSTRUCTION, _INSTRUCTION),
    (Trait.PREFERS, _PREFERS),
    (Trait.COUNTS, _DIGIT),
)
_ROLES = {"user": Trait.USER, "assistant": Trait.ASSISTANT}


def compute_traits(record: MemoryRecord) -> int:
    """Return the traits of a memory and its number of words as one integer."""
    flags = _text_traits(record.content)
    if record.category is Category.TURN:
        flags |= Trait.TURN | _ROLES.get(str(record.detail.get("role")), Trait.NONE)
        flags |= Trait.QUOTES_MEMORY if record.metadata.get(QUOTES_MEMORY) is True else Trait.NONE
    # The model knows what users say; the long answers of an assistant would take it a millisecond.
    if record.category is Category.INSTRUCTION or (
        not flags & (Trait.INSTRUCTION | Trait.ASSISTANT) and has_instruction(record.content)
    ):
        flags |= Trait.INSTRUCTION
    return int(flags) | min(_count_words(record.content), _MAX_WORDS) << _WORDS_SHIFT


def _text_traits(text: str) -> Trait:
    head = text[:_HEAD].replace("’", "'").lower()
    flags = Trait.NONE
    for trait, rule in _RULES:
        if rule.search(head):
            flags |= trait
    if _asks(text[-_TAIL:]):
        flags |= Trait.ASKS
    return flags


def _asks(tail: str) -> bool:
    return tail.rstrip(" \t\r\n\"'”’)*_").endswith(("?", "？", "؟"))


def _count_words(text: str) -> int:
    """Count words by spaces; in scripts without spaces, a word for every two characters."""
    words = text.count(" ") + text.count("\n") + 1
    return words if text.isascii() else max(words, sum(char > "\u2e7f" for char in text[:_HEAD]) // 2)


def speaker_name(record: MemoryRecord) -> str:
    """Return the folded name of the speaker; empty where there is none."""
    name = record.detail.get("name") if record.category is Category.TURN else None
    return fold_name(name) if isinstance(name, str) else ""


def fold_name(name: str) -> str:
    """Return a name in the form in which names are compared."""
    return " ".join(name.casefold().split())[:_NAME_CHARS]


def first_word(name: str) -> str:
    """Return the first word of a folded name, by which a question may mention it."""
    match = _BARE_WORD.search(name)
    return match.group() if match else ""


def trait_word_count(traits: int) -> int:
    """Return the number of words that `compute_traits` counted."""
    return traits >> _WORDS_SHIFT


def trait_flags(traits: int) -> Trait:
    """Return the traits without the number of words."""
    return Trait(traits & ((1 << _WORDS_SHIFT) - 1))
