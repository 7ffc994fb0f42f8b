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
# Those of which there may be tables in PostgreSQL.
_IN_TABLES = ("mem0", "langgraph")


def reader(kind: str) -> Reader:
    """The reader of a product's memory."""
    if kind not in READERS:
        raise InvalidInput(f"nothing is known of {kind!r}; those known are {', '.join(READERS)}")
    return import_module(f"recollect.movein.{READERS[kind]}")


def recognised(source: Source) -> tuple[str, str]:
    """Which product's memory it is, and by what that is known."""
    if source.is_database:
        return _recognised_tables(source)
    for kind in READERS:
        if why := reader(kind).recognise(source):
            return kind, why
    raise InvalidInput(f"{source.shown} is like nothing that is known; say what it is: {', '.join(READERS)}")


def _recognised_tables(source: Source) -> tuple[str, str]:
    found = {kind: why for kind in _IN_TABLES if (why := reader(kind).recognise(source))}
    if not found:
        raise InvalidInput(f"{source.shown} has no tables of {' or '.join(_IN_TABLES)}: is it the right database?")
    if len(found) > 1:
        # A database is often shared; nothing that is in it goes by unsaid.
        raise InvalidInput(f"{source.shown} has tables of {' and of '.join(found)}: say which are meant")
    return next(iter(found.items()))


def check_readable(kind: str, source: Source) -> None:
    """Raise if nothing of this product can be in such a source."""
    if source.is_database and kind in READERS and kind not in _IN_TABLES:
        raise InvalidInput(f"what {kind} keeps is not in PostgreSQL; of {' and '.join(_IN_TABLES)} it is read there")
