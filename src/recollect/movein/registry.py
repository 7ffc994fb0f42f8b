"""Which products' memories can be brought in, and how one is told from another."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

from recollect.errors import InvalidInput
from recollect.movein.item import Reader
from recollect.movein.source import Source

# In the order they are asked: those with marks of their own first, plain text last.
READERS: Mapping[str, str] = {
    "mem0": "mem0",
    "agent-cli": "agent_cli",
    "langgraph": "langgraph",
    "letta": "letta",
    "chatgpt": "chatgpt",
    "claude": "claude",
    "zep": "zep",
    "recollect": "own",
    "markdown": "markdown",
}


def reader(kind: str) -> Reader:
    """The reader of a product's memory."""
    if kind not in READERS:
        raise InvalidInput(f"nothing is known of {kind!r}; those known are {', '.join(READERS)}")
    return import_module(f"recollect.movein.{READERS[kind]}")


def recognised(source: Source) -> tuple[str, str]:
    """Which product's memory it is, and by what that is known."""
    for kind in READERS:
        if why := reader(kind).recognise(source):
            return kind, why
    raise InvalidInput(f"{source.place} is like nothing that is known; say what it is: {', '.join(READERS)}")
