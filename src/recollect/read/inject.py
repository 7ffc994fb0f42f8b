"""Insert the block of memories into the messages of a chat request, and leave everything else unchanged.

By default the block is a separate message before the last user message, so that the provider's prompt cache still
matches everything before it. Its role is user, not system: memories contain text from users, pages and tools, which
must not gain the authority of the operator. Models whose templates require alternating roles need the place
"question".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias, assert_never

from recollect.model.messages import QUESTION_MARK, message_role
from recollect.read.strip_context import strip_context

InjectPlace: TypeAlias = Literal["before-question", "system", "system-message", "question"]
Message: TypeAlias = Mapping[str, Any]

_SYSTEM_ROLES = ("system", "developer")
_TOOL_ROLES = ("tool", "function")


def inject(messages: Sequence[Message], block: str, *, place: InjectPlace = "before-question") -> list[Message]:
    """Return the messages with the block inserted; the other messages are the same objects.

    "before-question": a user message before the last user message, never between a tool call and its results.
    "system": at the end of the last of the system or developer messages that come first; a new one if none does.
    "system-message": a system message after the system or developer messages that come first.
    "question": the last user message becomes the block, "Current message:" and its text.
    Without a user message, the first and the last insert one after the leading system messages.
    Fenced blocks of earlier calls are removed, so that there is only one block.
    """
    result = list(messages)
    if not result or not block.strip():
        return result
    result = _without_blocks(result)
    match place:
        case "before-question":
            return _insert_before_question(result, block)
        case "system":
            return _append_to_system(result, block)
        case "system-message":
            return _insert_system(result, block)
        case "question":
            return _prepend_to_question(result, block)
        case _:
            assert_never(place)


def _insert_before_question(messages: list[Message], block: str) -> list[Message]:
    at = _question_index(messages)
    at = _count_leading_system(messages) if at is None else _outside_calls(messages, at)
    return [*messages[:at], {"role": "user", "content": block}, *messages[at:]]


def _append_to_system(messages: list[Message], block: str) -> list[Message]:
    count = _count_leading_system(messages)
    if count and _accepts_text(messages[count - 1]):
        last = messages[count - 1]
        return [
            *messages[: count - 1],
            _with_content(last, _append_block(last.get("content"), block)),
            *messages[count:],
        ]
    return _insert_system(messages, block)


def _insert_system(messages: list[Message], block: str) -> list[Message]:
    count = _count_leading_system(messages)
    return [*messages[:count], {"role": "system", "content": block}, *messages[count:]]


def _prepend_to_question(messages: list[Message], block: str) -> list[Message]:
    at = _question_index(messages)
    if at is None or not _accepts_text(messages[at]):
        return _insert_before_question(messages, block)
    content = messages[at].get("content")
    return [
        *messages[:at],
        _with_content(messages[at], _prepend_block(content, block.rstrip("\n"))),
        *messages[at + 1 :],
    ]


def _without_blocks(messages: Sequence[Message]) -> list[Message]:
    """Return the messages without injected blocks; messages without one are the same objects."""
    remaining = []
    for message in messages:
        may_hold_block = message_role(message) in (*_SYSTEM_ROLES, "user")
        stripped = _without_block(message) if may_hold_block else message
        # An image beside the block is the user's.
        if stripped is message or stripped.get("content"):
            remaining.append(stripped)
    return remaining


def _without_block(message: Message) -> Message:
    content = message.get("content")
    if isinstance(content, str):
        remaining: object = strip_context(content)
    elif isinstance(content, list):
        parts = [(part, _without_block_in_part(part)) for part in content]
        # A part that was a block and nothing else goes; one that was empty before is not ours.
        remaining = [new for old, new in parts if new is old or new["text"].strip()]
        remaining = content if all(new is old for old, new in parts) else remaining
    else:
        return message
    return message if remaining is content or remaining == content else _with_content(message, remaining)


def _without_block_in_part(part: Any) -> Any:
    text = part.get("text") if isinstance(part, Mapping) else None
    remaining = strip_context(text) if isinstance(text, str) else text
    return part if remaining == text else {**part, "text": remaining}


def _question_index(messages: Sequence[Message]) -> int | None:
    """Return the index of the last user message, or None."""
    return next((at for at in range(len(messages) - 1, -1, -1) if message_role(messages[at]) == "user"), None)


def _count_leading_system(messages: Sequence[Message]) -> int:
    """Return the number of leading system and developer messages."""
    return next(
        (at for at, message in enumerate(messages) if message_role(message) not in _SYSTEM_ROLES), len(messages)
    )


def _outside_calls(messages: Sequence[Message], at: int) -> int:
    """Return the index, or that of the preceding tool call if its results come after the index."""
    for message in messages[at:]:
        if message_role(message) == "assistant":
            return at
        if message_role(message) in _TOOL_ROLES:
            break
    else:
        return at
    calls = (
        before
        for before in range(at - 1, -1, -1)
        if message_role(messages[before]) == "assistant"
        and (messages[before].get("tool_calls") or messages[before].get("function_call"))
    )
    return next(calls, at)


def _accepts_text(message: Message) -> bool:
    content = message.get("content")
    return content is None or isinstance(content, (str, list))


def _with_content(message: Message, content: object) -> Message:
    """Return a copy with other content and the same order of keys."""
    return {**message, "content": content}


def _append_block(content: str | list[Any] | None, block: str) -> str | list[Any]:
    if isinstance(content, list):
        return [*content, _text_part(block, content)]
    return f"{content}\n\n{block}" if content else block


def _prepend_block(content: str | list[Any] | None, block: str) -> str | list[Any]:
    if isinstance(content, list):
        return [_text_part(f"{block}\n\n{QUESTION_MARK}", content), *content]
    return block if content is None else f"{block}\n\n{QUESTION_MARK} {content}"


def _text_part(text: str, siblings: Sequence[object]) -> dict[str, str]:
    """Return a text part of the same type as its neighbours."""
    kinds = [str(part.get("type")) for part in siblings if isinstance(part, Mapping)]
    return {"type": "input_text" if any(kind.startswith("input_") for kind in kinds) else "text", "text": text}
