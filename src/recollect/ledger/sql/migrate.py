"""Numbered migrations, each in a transaction, so that a crash leaves the previous schema."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from recollect.errors import StoreCorrupt, StoreTooNew
from recollect.lazy_pattern import lazy_pattern
from recollect.ledger.sql.tx import ALL_TENANTS, NO_TENANT, SqlEngine, Tx, fetch_one
from recollect.model.times import now, to_micros

_NAME = lazy_pattern(r"(\d{4})_\w+(?:\.(\w+))?\.sql")
_META = "CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value TEXT NOT NULL)"


@cache
def migrations(dialect: str) -> dict[int, tuple[str, ...]]:
    """Return the statements of each migration by number, those of the shared file before the dialect's own."""
    scripts: dict[int, list[tuple[str, str]]] = {}
    for file in Path(__file__).with_name("migrations").iterdir():
        match = _NAME.fullmatch(file.name)
        if match and match[2] in (None, dialect):
            scripts.setdefault(int(match[1]), []).append((match[2] or "", file.read_text(encoding="utf-8")))
    return {
        number: tuple(statement for _, text in sorted(scripts[number]) for statement in _statements(text))
        for number in sorted(scripts)
    }


def _statements(text: str) -> Iterator[str]:
    bare = "\n".join(line for line in text.splitlines() if not line.startswith("--"))
    for statement in re.split(r";\s*$", bare, flags=re.MULTILINE):
        if statement.strip():
            yield statement.strip()


async def migrate(engine: SqlEngine) -> None:
    """Migrate the store to the newest schema; refuse one of a newer Recollect unchanged."""
    available = migrations(engine.dialect.name)
    newest = max(available)
    if await engine.read(_read_schema, tenant=NO_TENANT) == newest:
        return
    for number, statements in available.items():

        async def step(tx: Tx, number: int = number, statements: tuple[str, ...] = statements) -> None:
            await tx.run(_META, {})
            current = await _schema(tx)
            if current > newest:
                raise StoreTooNew(
                    f"the ledger has schema {current}, this Recollect knows {newest}: upgrade with "
                    f"pip install -U recollect; nothing was changed"
                )
            # Another process may have done this one while this one waited for the lock.
            if current >= number:
                return
            for statement in statements:
                await tx.run(_fill_placeholders(statement, engine), {})
            await set_meta(tx, "schema", str(number))
            await set_meta(tx, f"schema_{number}_at", str(to_micros(now())))

        await engine.write(step, tenant=ALL_TENANTS)


def _fill_placeholders(statement: str, engine: SqlEngine) -> str:
    for name, fragment in engine.dialect.fragments.items():
        statement = statement.replace(f"{{{name}}}", fragment)
    return statement


async def _schema(tx: Tx) -> int:
    exists = await tx.rows(tx.dialect.fragments["table_exists"], {"name": "meta"})
    return int(await meta(tx, "schema") or 0) if exists else 0


async def _read_schema(tx: Tx) -> int:
    """Return the schema version, 0 for an empty store; refuse a foreign database.

    Both are read in one view, because another process may be creating the ledger at this moment.
    """
    current = await _schema(tx)
    if not current and (tables := await tx.rows(tx.dialect.fragments["stranger"], {})):
        raise StoreCorrupt(f"this is not a Recollect ledger: it has a table {tables[0][0]!r}; give another file")
    return current


async def meta(tx: Tx, name: str) -> str | None:
    """Return a value of the `meta` table."""
    row = await fetch_one(tx, "SELECT value FROM meta WHERE name = :name", {"name": name})
    return row[0] if row else None


async def set_meta(tx: Tx, name: str, value: str) -> None:
    """Set a value of the `meta` table."""
    await tx.run(
        "INSERT INTO meta (name, value) VALUES (:name, :value) "
        "ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        {"name": name, "value": value},
    )
