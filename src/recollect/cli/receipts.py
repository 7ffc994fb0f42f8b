"""What was erased, on the command line: a receipt in words, all of them as a list or a file, and doing them again."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import TextIO

import click

from recollect.cli.context import CliContext
from recollect.cli.rendering import format_short_time, pluralize
from recollect.cli.streams import open_new_file
from recollect.cli.table import Column, TableRow, print_table
from recollect.cli.terminal import clean, dim, json_text, print_json, print_line
from recollect.errors import InvalidInput
from recollect.model.erasure import Erasure, Receipt, parse_erasure

_RECEIPT_COLUMNS = [
    Column("RECEIPT", style="bold"),
    Column("WHEN", style="dim"),
    Column("WHAT"),
    Column("WHICH", optional=True),
    Column("USER'S DIGEST", style="dim"),
]


def ask_confirmation(cli: CliContext, question: str) -> bool:
    """Whether the person at the terminal says yes; a usage error where there is none."""
    if cli.json or not sys.stdin.isatty():
        raise click.UsageError("Add --yes: there is nobody to ask.", click.get_current_context())
    return click.confirm(clean(question), err=True)


def print_receipt(receipt: Receipt, description: str) -> None:
    """Say what went from each store, what was not reached, and where nobody can reach from here."""
    print_line(f"Erased {description} for good  ", dim(f"receipt {receipt.id}"))
    for store in receipt.stores:
        removed = ", ".join(f"{name} {count:,}" for name, count in store.counts.items() if count) or "nothing"
        print_line(f"  {store.store}: {removed}", dim(f"  {store.note}") if store.note else "")
        if unreached := [part for part, reached in store.parts.items() if not reached]:
            print_line(f"    not reached: {', '.join(unreached)}")
    if receipt.remade:
        print_line(dim(f"  {pluralize(len(receipt.remade), 'thing')} can be made anew from what is left"))
    if receipt.hidden:
        print_line(f"  forgotten, not erased: what it was learned from, {pluralize(len(receipt.hidden), 'turn')}")
        for id in receipt.hidden:
            print_line(dim(f"    recollect erase --turn {id} --user {receipt.scope.user}"))
    if remaining := [id for id in receipt.stays if id not in receipt.hidden]:
        print_line(dim(f"  what it was learned from stays: {', '.join(remaining)}"))
    if receipt.out_of_reach:
        print_line(dim(f"  out of reach from here: {', '.join(each.store for each in receipt.out_of_reach)}"))
    if not receipt.reached:
        print_line("Not every store could be reached: erase it again once they can.", err=True)


def list_receipts(cli: CliContext, to: str | None) -> None:
    """Show what was erased, of one user or of all, or write it to a file as JSON Lines."""
    with cli.open() as memory:
        erasures = memory.erasure.list(user_id=cli.user)
    if to == "-":
        _write_receipts(erasures, sys.stdout)
    elif to is not None:
        with open_new_file(Path(to), force=True) as out:
            _write_receipts(erasures, out)
        if cli.json:
            print_json({"receipts": len(erasures), "file": to})
        else:
            print_line(f"Wrote {pluralize(len(erasures), 'receipt')} to {to}")
    elif cli.json:
        print_json({"results": [each.to_dict() for each in erasures]})
    elif erasures:
        print_table(_RECEIPT_COLUMNS, [_receipt_row(each) for each in erasures])
    else:
        print_line("Nothing was erased so far.")


def _write_receipts(erasures: list[Erasure], out: TextIO) -> None:
    for each in erasures:
        out.write(json_text(each.to_dict()) + "\n")
    out.flush()


def _receipt_row(erasure: Erasure) -> TableRow:
    names = [name for name in (erasure.project, erasure.session) if name]
    more = f" and {len(erasure.ids) - 1:,} more" if len(erasure.ids) > 1 else ""
    return TableRow(
        (
            erasure.id,
            format_short_time(erasure.at),
            str(erasure.target),
            "/".join(names or erasure.ids[:1]) + more,
            erasure.user,
        )
    )


def replay_receipts(cli: CliContext, file: str, *, yes: bool, why: str) -> None:
    """Erase again what the file tells of and this database still has."""
    if cli.user is not None:
        raise click.UsageError("A replay is for all users that the file tells of.", click.get_current_context())
    erasures = read_receipts(file)
    kinds = Counter(str(each.target) for each in erasures)
    description = ", ".join(f"{name} {count:,}" for name, count in kinds.items()) or "nothing"
    if (
        erasures
        and not yes
        and not ask_confirmation(cli, f"Erase again for good, as far as it is here: {description}?")
    ):
        print_line("Nothing was erased.", err=True)
        return
    with cli.open() as memory:
        receipts = memory.acting_as("cli", why=why).erasure.replay(erasures)
    if cli.json:
        print_json({"given": len(erasures), "results": [receipt.to_dict() for receipt in receipts]})
        return
    for receipt in receipts:
        print_receipt(receipt, f"{receipt.what.target} {receipt.what.id}".rstrip() + f" of user {receipt.scope.user}")
    skipped = len(erasures) - len(receipts)
    print_line(
        f"Replayed {pluralize(len(receipts), 'erasure')}; {skipped:,} were known here, or had nothing to erase."
    )


def read_receipts(file: str) -> list[Erasure]:
    """The erasures of a file; all of it is read before anything is done."""
    try:
        text = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise click.FileError(file, error.strerror or "") from None
    erasures = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            erasures.append(parse_erasure(json.loads(line)))
        except (ValueError, RecursionError, InvalidInput) as error:
            raise InvalidInput(f"line {number} of {file} is no receipt: {error}; nothing was erased") from None
    return erasures
