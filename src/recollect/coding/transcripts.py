"""Transcripts of coding agents: the words of the user and of the agent, without tool calls and their output.

Claude Code, Codex, Gemini CLI and Cursor write a JSON value on each line; their fields differ.
"""

from __future__ import annotations

import json
import os

from recollect.coding.events import clean_prompt

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

_ROLES = {"user": "user", "assistant": "assistant", "gemini": "assistant"}
_TEXT_PARTS = ("text", "input_text", "output_text")
# Enough for the last answers; a transcript may have hundreds of megabytes.
_TAIL_BYTES = 1 << 18


def read_message(entry: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the role and the text of a line of a transcript; None for tools, metadata and the client's own text."""
    if entry.get("isMeta") or entry.get("isSidechain") or entry.get("isCompactSummary"):
        return None
    payload = entry.get("payload")
    if entry.get("type") == "response_item" and isinstance(payload, dict):
        message: Mapping[str, Any] = payload
        kind = payload.get("role") if payload.get("type") == "message" else None
    else:
        inner = entry.get("message")
        message = inner if isinstance(inner, dict) else entry
        kind = message.get("role") or entry.get("role") or entry.get("type")
    role = _ROLES.get(kind) if isinstance(kind, str) else None
    if role is None:
        return None
    text = _text_of(message.get("content"))
    text = clean_prompt(text) if role == "user" else text.strip()
    return (role, text) if text else None


def _text_of(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else [content]
    texts = [
        part if isinstance(part, str) else part.get("text")
        for part in parts
        if isinstance(part, str) or (isinstance(part, dict) and part.get("type", "text") in _TEXT_PARTS)
    ]
    return "\n".join(text for text in texts if isinstance(text, str) and text.strip())


def turn_key(role: str, text: str) -> str:
    """Return what identifies a turn in its session: hooks and imports of a transcript store it once."""
    from hashlib import blake2b

    return blake2b(f"{role} {text.strip()}".encode(errors="replace"), digest_size=16).hexdigest()


def read_last_exchange(path: str) -> tuple[str, str]:
    """Return the last prompt, and what the agent wrote since; empty if the file cannot be read."""
    try:
        with open(path, "rb") as file:
            start = max(0, os.fstat(file.fileno()).st_size - _TAIL_BYTES)
            file.seek(start)
            lines = file.read(_TAIL_BYTES).splitlines()
    except OSError:
        return "", ""
    prompt, texts = "", list[str]()
    # The first line may be the end of a longer one.
    for line in reversed(lines[1:] if start else lines):
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        message = read_message(entry) if isinstance(entry, dict) else None
        if message is not None and message[0] == "user":
            prompt = message[1]
            break
        if message is not None:
            texts.append(message[1])
    return prompt, "\n\n".join(reversed(texts))
