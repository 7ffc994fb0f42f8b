"""OpenAI-style messages: who speaks, and what is said in text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

_TEXT_PARTS = ("text", "input_text", "output_text")


def message_text(content: object) -> str:
    """What a message's content says: a text, or the text parts of a list; images and sounds say nothing here."""
    if isinstance(content, str):
        return content
    if not isinstance(content, Sequence):
        return ""
    parts = (part for part in content if isinstance(part, Mapping) and part.get("type", "text") in _TEXT_PARTS)
    return "\n".join(text for part in parts if isinstance(text := part.get("text"), str))


def message_role(message: object) -> str:
    """Who speaks: the message's role, or nothing for what is no message or names none."""
    role = message.get("role") if isinstance(message, Mapping) else None
    return role if isinstance(role, str) else ""
