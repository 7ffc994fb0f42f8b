"""What a chat model is: messages in, one text out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeAlias

# {"role": "system" | "user" | "assistant", "content": "..."}
ChatMessage: TypeAlias = Mapping[str, str]


class Chat(Protocol):
    """Answers messages with a text."""

    @property
    def model(self) -> str: ...

    async def complete(
        self,
        messages: Sequence[ChatMessage],
        *,
        max_tokens: int,
        temperature: float = 0.0,
        timeout_s: float | None = None,
        schema: Mapping[str, Any] | None = None,
    ) -> str:
        """What the model answers, without its thinking; never empty, for no answer is a ModelUnavailable.

        With a JSON `schema` the model is told to keep to it. It may still not: what it says must be checked.
        """
        ...

    async def close(self) -> None: ...
