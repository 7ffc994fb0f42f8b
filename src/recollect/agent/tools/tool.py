"""One tool: a name, what it is for, what it takes, and what it does."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from recollect.errors import InvalidInput

# What every endpoint takes for the name of a function.
_TOOL_NAME = re.compile("[A-Za-z0-9_-]{1,64}")
NO_PARAMETERS: Mapping[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}


@dataclass(frozen=True, slots=True)
class Tool:
    """Something a model may have done: `run` takes the arguments that `parameters`, a JSON schema, describes.

    What `run` gives is told to the model. What it raises is told to it as well, and ends nothing.
    """

    name: str
    description: str
    parameters: Mapping[str, Any] = field(default_factory=lambda: NO_PARAMETERS)
    run: Callable[[Mapping[str, Any]], Awaitable[str]] = field(kw_only=True)

    def __post_init__(self) -> None:
        if not _TOOL_NAME.fullmatch(self.name):
            raise InvalidInput(f"a tool's name has up to 64 letters, digits, _ and -; {self.name[:80]!r} has others")
        if self.parameters.get("type") != "object":
            raise InvalidInput(f"the parameters of {self.name} are a JSON schema of type object")

    @property
    def openai_schema(self) -> dict[str, Any]:
        """The tool as an OpenAI-compatible endpoint is told of it."""
        function = {"name": self.name, "description": self.description, "parameters": dict(self.parameters)}
        return {"type": "function", "function": function}


def result_text(value: object) -> str:
    """What a tool gave, as text: text as it is, anything else as JSON."""
    if isinstance(value, str):
        return value
    if value is None:
        return "done"
    return json.dumps(value, ensure_ascii=False, default=str)
