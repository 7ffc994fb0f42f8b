"""Words about the conversation itself, which are no search terms in a question."""

from __future__ import annotations

from recollect.lazy_pattern import lazy_pattern

_CONVERSATION_WORDS = frozenset(
    """mention mentions mentioned mentioning discuss discussed discussing discussion discussions talk talked talking
    conversation conversations chat chats chatted session sessions tell told telling remember recall remind list order
    summary summarize summarise overview ask asked asking say said says saying bring brought different aspect aspects
    throughout across comprehensive provide give please walk through only item items detail details know going
    wondering wonder think
    erwähnt erwähnen besprochen gespräch gespräche unterhaltung gesagt erzählt erinnere erinnerst bitte
    zusammenfassung mentionné discuté conversation discussion dit raconté rappelle souviens résumé
    mencioné mencionado hablamos conversación charla dije dijiste recuerda recuerdas resumen favor""".split()
)
_WORD = lazy_pattern(r"[^\W_]+(?:['’][^\W_]+)*")
# Fewer words than this are no longer a question of their own.
_MIN_WORDS = 2
_MAX_CHARS = 2_000


def drop_conversation_words(question: str) -> str:
    """Return the question without words about the conversation; unchanged if too little would be left."""
    if len(question) > _MAX_CHARS:
        return question
    words = _WORD.findall(question)
    remaining = [word for word in words if word.casefold() not in _CONVERSATION_WORDS]
    if len(remaining) == len(words) or sum(len(word) > 3 for word in remaining) < _MIN_WORDS:
        return question
    return " ".join(remaining)
