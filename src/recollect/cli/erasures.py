"""What was erased, on the command line: a receipt in words, all of them as a list or a file, and doing them again."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import TextIO

import click

from recollect.cli.given import Given
from recollect.cli.new_file import new_file
from recollect.cli.records import counted, short_time
from recollect.cli.table import Column, Row, print_table
from recollect.cli.terminal import clean, dim, json_text, print_json, say
from recollect.errors import InvalidInput
from recollect.model.erase import Erasure, Receipt, read_erasure

_COLUMNS = [
    Column("RECEIPT", style="bold"),
    Column("WHEN", style="dim"),
    Column("WHAT"),
    Column("WHICH", optional=True),
    Column("USER'S DIGEST", style="dim"),
]


def agreed(given: Given, question: str) -> bool:
    """Whether the person at the terminal says yes; a usage error where there is none."""
    if given.json or not sys.stdin.isatty():
        raise click.UsageError("Add --yes: there is nobody to ask.", click.get_current_context())
    return click.confirm(clean(question), err=True)


def tell(receipt: Receipt, what: str) -> None:
    """Say what went from each store, what was not reached, and where nobody can reach from here."""
    say(f"Erased {what} for good  ", dim(f"receipt {receipt.id}"))
    for store in receipt.stores:
        gone = ", ".join(f"{name} {count:,}" for name, count in store.counts.items() if count) or "nothing"
        say(f"  {store.store}: {gone}", dim(f"  {store.note}") if store.note else "")
        if left := [part for part, reached in store.parts.items() if not reached]:
            say(f"    not reached: {', '.join(left)}")
    if receipt.remade:
        say(dim(f"  {counted(len(receipt.remade), 'thing')} can be made anew from what is left"))
    if receipt.hidden:
        say(f"  forgotten, not erased: what it was learned from, {counted(len(receipt.hidden), 'turn')}")
        for id in receipt.hidden:
            say(dim(f"    recollect erase --turn {id} --user {receipt.scope.user}"))
    if rest := [id for id in receipt.stays if id not in receipt.hidden]:
        say(dim(f"  what it was learned from stays: {', '.join(rest)}"))
    if receipt.out_of_reach:
        say(dim(f"  out of reach from here: {', '.join(each.store for each in receipt.out_of_reach)}"))
    if not receipt.reached:
        say("Not every store could be reached: erase it again once they can.", err=True)


def list_receipts(given: Given, to: str | None) -> None:
    """Show what was erased, of one user or of all, or write it to a file as JSON Lines."""
    with given.open() as memory:
        found = memory.erasures(user_id=given.user)
    if to == "-":
        _write(found, sys.stdout)
    elif to is not None:
        with new_file(Path(to), force=True) as out:
            _write(found, out)
        if given.json:
            print_json({"receipts": len(found), "file": to})
        else:
            say(f"Wrote {counted(len(found), 'receipt')} to {to}")
    elif given.json:
        print_json({"results": [each.to_dict() for each in found]})
    elif found:
        print_table(_COLUMNS, [_row(each) for each in found])
    else:
        say("Nothing was erased so far.")


def _write(found: list[Erasure], out: TextIO) -> None:
    for each in found:
        out.write(json_text(each.to_dict()) + "\n")
    out.flush()


def _row(each: Erasure) -> Row:
    named = [name for name in (each.project, each.session) if name]
    more = f" and {len(each.ids) - 1:,} more" if len(each.ids) > 1 else ""
    return Row((each.id, short_time(each.at), str(each.target), "/".join(named or each.ids[:1]) + more, each.user))


def replay_receipts(given: Given, file: str, *, yes: bool, why: str) -> None:
    """Erase again what the file tells of and this database still has."""
    if given.user is not None:
        raise click.UsageError("A replay is for all users that the file tells of.", click.get_current_context())
    erasures = read_receipts(file)
    kinds = Counter(str(each.target) for each in erasures)
    what = ", ".join(f"{name} {count:,}" for name, count in kinds.items()) or "nothing"
    if erasures and not yes and not agreed(given, f"Erase again for good, as far as it is here: {what}?"):
        say("Nothing was erased.", err=True)
        return
    with given.open() as memory:
        receipts = memory.replay_erasures(erasures, by="cli", why=why)
    if given.json:
        print_json({"given": len(erasures), "results": [receipt.to_dict() for receipt in receipts]})
        return
    for receipt in receipts:
        tell(receipt, f"{receipt.what.target} {receipt.what.id}".rstrip() + f" of user {receipt.scope.user}")
    rest = len(erasures) - len(receipts)
    say(f"Replayed {counted(len(receipts), 'erasure')}; {rest:,} were known here, or had nothing to erase.")


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
            erasures.append(read_erasure(json.loads(line)))
        except (ValueError, RecursionError, InvalidInput) as error:
            raise InvalidInput(f"line {number} of {file} is no receipt: {error}; nothing was erased") from None
    return erasures
