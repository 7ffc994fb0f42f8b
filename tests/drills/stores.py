"""Open the ledger of a drill by address: a file name, or a PostgreSQL address."""

from __future__ import annotations

from pathlib import Path

from recollect.ledger.ledger import Ledger
from tests.drills.writers import MODEL


async def open_store(address: str, *, vfs: str | None = None) -> Ledger:
    """Open the ledger at an address."""
    if address.startswith("postgresql://"):
        from recollect.ledger.postgres import open_postgres

        return await open_postgres(address, MODEL)
    from recollect.ledger.sqlite import open_sqlite

    return await open_sqlite(Path(address), MODEL, vfs=vfs)
