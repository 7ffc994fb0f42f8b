"""recollect partition"""

from __future__ import annotations

import asyncio

import click

from recollect.cli.command import Command
from recollect.cli.given import CliContext, pass_cli
from recollect.cli.terminal import print_json, print_line
from recollect.errors import Unsupported
from recollect.settings import Settings


@click.command(cls=Command, whose="", examples=("recollect partition 16 --database postgresql://host/recollect",))
@click.argument("parts", type=click.IntRange(2, 1024))
@pass_cli
def partition(cli: CliContext, parts: int) -> None:
    """Split the large tables of a PostgreSQL database by user.

    Into so many PARTS; for a database with tables of hundreds of gigabytes. Stop everything that uses the database
    first: it is done once, in one transaction that writes the tables anew, and needs as much free space as they take.
    """
    asyncio.run(_split_tables(cli.load().settings, parts))
    if cli.json:
        print_json({"parts": parts})
    else:
        print_line(f"Split the large tables into {parts} parts each.")


async def _split_tables(settings: Settings, parts: int) -> None:
    from recollect.ledger.sql.ledger import SqlLedger
    from recollect.wiring import open_embedder, open_ledger

    embedder = await open_embedder(settings)
    try:
        # Brings the tables up to date first.
        ledger = await open_ledger(settings, embedder.model)
        try:
            if not isinstance(ledger, SqlLedger) or ledger.engine.dialect.name != "postgres":
                raise Unsupported(
                    "only a ledger in PostgreSQL can be split: name one with --database postgresql://..."
                )
            from recollect.ledger.postgres import PostgresEngine
            from recollect.ledger.postgres_partition import partition

            assert isinstance(ledger.engine, PostgresEngine)
            await partition(ledger.engine, parts)
        finally:
            await ledger.close()
    finally:
        await embedder.close()
