"""Put a block of memories into the messages of a chat request, and touch nothing else.

By default the block is a message of its own just before the last user message: all before it stays as it was, so the
provider's prompt cache still knows it. It speaks as the user, not as the system: memories hold what users, pages and
tools once said, and must not rise to the operator's level by being remembered. Models whose templates want user and
assistant to take turns need the place "question".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias, assert_never

from recollect.model.fence import QUESTION_MARK
from recollect.model.message import role_of
from recollect.read.known_again import strip_recalled

Place: TypeAlias = Literal["before-question", "system", "question"]
Message: TypeAlias = Mapping[str, Any]

_SYSTEM = ("system", "developer")
_ANSWERS = ("tool", "function")


def inject(messages: Sequence[Message], block: str, *, place: Place = "before-question") -> list[Message]:
    """The messages with the block in its place, all others the very same; without a block or a message, all of them.

    "before-question": a user message before the last user message, never between a tool call and its results.
    "system": at the end of the last of the system or developer messages that come first; a new one if none does.
    "question": the last user message becomes the block, "Current message:" and what it said.
    Where no user speaks, the first and the last put a user message after the system messages that come first.
    A fenced block that an earlier call put there goes, so that messages which are handed back hold one block.
    """
    given = list(messages)
    if not given or not block.strip():
        return given
    given = _without_blocks(given)
    match place:
        case "before-question":
            return _before_question(given, block)
        case "system":
            return _in_system(given, block)
        case "question":
            return _in_question(given, block)
        case _:
            assert_never(place)


def _before_question(messages: list[Message], block: str) -> list[Message]:
    at = _question_at(messages)
    at = _leading_system(messages) if at is None else _outside_calls(messages, at)
    return [*messages[:at], {"role": "user", "content": block}, *messages[at:]]


def _in_system(messages: list[Message], block: str) -> list[Message]:
    count = _leading_system(messages)
    if count and _can_grow(messages[count - 1]):
        last = messages[count - 1]
        return [*messages[: count - 1], _with_content(last, _after(last.get("content"), block)), *messages[count:]]
    return [*messages[:count], {"role": "system", "content": block}, *messages[count:]]


def _in_question(messages: list[Message], block: str) -> list[Message]:
    at = _question_at(messages)
    if at is None or not _can_grow(messages[at]):
        return _before_question(messages, block)
    asked = messages[at].get("content")
    return [*messages[:at], _with_content(messages[at], _before(asked, block.rstrip("\n"))), *messages[at + 1 :]]


def _without_blocks(messages: Sequence[Message]) -> list[Message]:
    """The messages without what recall once put there; those that hold nothing of it are the very same."""
    left = []
    for message in messages:
        ours = role_of(message) in (*_SYSTEM, "user")
        kept = _without_block(message) if ours else message
        # An image beside the block is the user's.
        if kept is message or kept.get("content"):
            left.append(kept)
    return left


def _without_block(message: Message) -> Message:
    content = message.get("content")
    if isinstance(content, str):
        left: object = strip_recalled(content)
    elif isinstance(content, list):
        parts = [(part, _without_block_in_part(part)) for part in content]
        # A part that was a block and nothing else goes; one that was empty before is not ours.
        left = [new for old, new in parts if new is old or new["text"].strip()]
        left = content if all(new is old for old, new in parts) else left
    else:
        return message
    return message if left is content or left == content else _with_content(message, left)


def _without_block_in_part(part: Any) -> Any:
    said = part.get("text") if isinstance(part, Mapping) else None
    left = strip_recalled(said) if isinstance(said, str) else said
    return part if left == said else {**part, "text": left}


def _question_at(messages: Sequence[Message]) -> int | None:
    """Where the last user message is, if there is one."""
    return next((at for at in range(len(messages) - 1, -1, -1) if role_of(messages[at]) == "user"), None)


def _leading_system(messages: Sequence[Message]) -> int:
    """How many system or developer messages come before all others."""
    return next((at for at, message in enumerate(messages) if role_of(message) not in _SYSTEM), len(messages))


def _outside_calls(messages: Sequence[Message], at: int) -> int:
    """The place itself, or the one before the tool call whose results come later than it."""
    for message in messages[at:]:
        if role_of(message) == "assistant":
            return at
        if role_of(message) in _ANSWERS:
            break
    else:
        return at
    calls = (
        before
        for before in range(at - 1, -1, -1)
        if role_of(messages[before]) == "assistant"
        and (messages[before].get("tool_calls") or messages[before].get("function_call"))
    )
    return next(calls, at)


def _can_grow(message: Message) -> bool:
    content = message.get("content")
    return content is None or isinstance(content, (str, list))


def _with_content(message: Message, content: object) -> Message:
    """A copy that says something else, its keys in the same order."""
    return {**message, "content": content}


def _after(content: str | list[Any] | None, block: str) -> str | list[Any]:
    if isinstance(content, list):
        return [*content, _part(block, content)]
    return f"{content}\n\n{block}" if content else block


def _before(content: str | list[Any] | None, block: str) -> str | list[Any]:
    if isinstance(content, list):
        return [_part(f"{block}\n\n{QUESTION_MARK}", content), *content]
    return block if content is None else f"{block}\n\n{QUESTION_MARK} {content}"


def _part(text: str, beside: Sequence[object]) -> dict[str, str]:
    """A text part of the kind that the parts beside it are."""
    kinds = [str(part.get("type")) for part in beside if isinstance(part, Mapping)]
    return {"type": "input_text" if any(kind.startswith("input_") for kind in kinds) else "text", "text": text}
