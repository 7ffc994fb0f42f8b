"""The importers, and how the product of a source is recognised."""

from __future__ import annotations

from importlib import import_module

from recollect.errors import InvalidInput
from recollect.transfer.importers.items import Importer
from recollect.transfer.importers.source import ImportSource

# In the order they are tried: distinctive formats first, plain text last. Each is a module of this package.
IMPORTERS = ("mem0", "agent-cli", "langgraph", "letta", "chatgpt", "claude", "zep", "recollect", "markdown")
_POSTGRES_KINDS = ("mem0", "langgraph")


def load_importer(kind: str) -> Importer:
    """Import the importer of a product."""
    if kind not in IMPORTERS:
        raise InvalidInput(f"unknown product {kind!r}; the known ones are {', '.join(IMPORTERS)}")
    return import_module(f"recollect.transfer.importers.{kind.replace('-', '_')}")


def recognise_source(source: ImportSource) -> tuple[str, str]:
    """Return the product of a source, and the evidence for it."""
    if source.is_database:
        reasons = {kind: why for kind in _POSTGRES_KINDS if (why := load_importer(kind).recognise(source))}
        if not reasons:
            products = " or ".join(_POSTGRES_KINDS)
            raise InvalidInput(f"{source.display_name} has no tables of {products}: is it the right database?")
        if len(reasons) > 1:
            raise InvalidInput(f"{source.display_name} has tables of {' and of '.join(reasons)}: choose one")
        return next(iter(reasons.items()))
    for kind in IMPORTERS:
        if why := load_importer(kind).recognise(source):
            return kind, why
    raise InvalidInput(f"{source.display_name} is not recognised; name its product: {', '.join(IMPORTERS)}")


def check_readable(kind: str, source: ImportSource) -> None:
    """Raise an InvalidInput if the product does not use PostgreSQL but the source is one."""
    if source.is_database and kind in IMPORTERS and kind not in _POSTGRES_KINDS:
        raise InvalidInput(f"{kind} does not use PostgreSQL; {' and '.join(_POSTGRES_KINDS)} do")
