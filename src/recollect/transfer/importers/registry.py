"""Which products' memories can be brought in, and how one is told from another."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

from recollect.errors import InvalidInput
from recollect.transfer.importers.items import Importer
from recollect.transfer.importers.source import ImportSource

# In the order they are asked: those with marks of their own first, plain text last.
IMPORTERS: Mapping[str, str] = {
    "mem0": "mem0",
    "agent-cli": "agent_cli",
    "langgraph": "langgraph",
    "letta": "letta",
    "chatgpt": "chatgpt",
    "claude": "claude",
    "zep": "zep",
    "recollect": "recollect",
    "markdown": "markdown",
}
# Those of which there may be tables in PostgreSQL.
_POSTGRES_KINDS = ("mem0", "langgraph")


def load_importer(kind: str) -> Importer:
    """The reader of a product's memory."""
    if kind not in IMPORTERS:
        raise InvalidInput(f"nothing is known of {kind!r}; those known are {', '.join(IMPORTERS)}")
    return import_module(f"recollect.transfer.importers.{IMPORTERS[kind]}")


def recognise_source(source: ImportSource) -> tuple[str, str]:
    """Which product's memory it is, and by what that is known."""
    if source.is_database:
        return _recognise_database(source)
    for kind in IMPORTERS:
        if why := load_importer(kind).recognise(source):
            return kind, why
    raise InvalidInput(f"{source.display_name} is like nothing that is known; say what it is: {', '.join(IMPORTERS)}")


def _recognise_database(source: ImportSource) -> tuple[str, str]:
    reasons = {kind: why for kind in _POSTGRES_KINDS if (why := load_importer(kind).recognise(source))}
    if not reasons:
        raise InvalidInput(
            f"{source.display_name} has no tables of {' or '.join(_POSTGRES_KINDS)}: is it the right database?"
        )
    if len(reasons) > 1:
        # A database is often shared; nothing that is in it goes by unsaid.
        raise InvalidInput(f"{source.display_name} has tables of {' and of '.join(reasons)}: say which are meant")
    return next(iter(reasons.items()))


def check_readable(kind: str, source: ImportSource) -> None:
    """Raise if nothing of this product can be in such a source."""
    if source.is_database and kind in IMPORTERS and kind not in _POSTGRES_KINDS:
        raise InvalidInput(
            f"what {kind} keeps is not in PostgreSQL; of {' and '.join(_POSTGRES_KINDS)} it is read there"
        )
