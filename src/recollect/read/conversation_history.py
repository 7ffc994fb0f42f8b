"""The earlier invocations of a conversation as lines for a prompt."""

from __future__ import annotations

from collections.abc import Iterable

from recollect.model.turn import Conversation
from recollect.prompts.rendering import shorten
from recollect.read.select import normalize_words

_MAX_INVOCATIONS = 10
_MAX_CHARS = 500
# A long query is stored without its middle.
_COMPARED_CHARS = 100


def invocation_lines(conversation: Conversation, message_texts: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the summaries of the last invocations in order, without those with a query among the texts."""
    present = tuple(message_texts)
    lines = []
    for each in conversation.invocations[-_MAX_INVOCATIONS:]:
        query = str(each.get("query", ""))
        start = normalize_words(query)[:_COMPARED_CHARS]
        if not start or not any(text.startswith(start) for text in present):
            lines.append(shorten(str(each.get("summary") or query), _MAX_CHARS))
    return tuple(filter(str.strip, lines))
