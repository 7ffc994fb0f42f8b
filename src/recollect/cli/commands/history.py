"""recollect history"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from recollect.cli.command import Command
from recollect.cli.given import CliContext, pass_cli
from recollect.cli.numbers import WholeNumber, limit_option
from recollect.cli.records import ID_COLUMN, format_short_time
from recollect.cli.table import Column, TableRow, print_table
from recollect.cli.terminal import dim, print_json, print_line
from recollect.errors import NotFound
from recollect.model.change import HistoryEntry

if TYPE_CHECKING:
    from recollect.sync import Memory

_MAX_CONTENT_CHARS = 100
_PAGE_SIZE = 100
_CHANGE_COLUMN = Column("CHANGE", style="bold", right=True)
_TIME_COLUMN = Column("WHEN", style="dim")
_KIND_COLUMN = Column("WHAT")
_AUTHOR_COLUMN = Column("WHO", optional=True)


@click.command(cls=Command, examples=("recollect history --user alex", "recollect history ID --user alex"))
@click.argument("memory_id", metavar="[ID]", required=False)
@limit_option("How many at once.")
@click.option("--before", type=WholeNumber(1), metavar="CHANGE", help="Only changes before this number.")
@pass_cli
def history(cli: CliContext, memory_id: str | None, limit: int, before: int | None) -> None:
    """Tell what happened: who, when, why and what was before.

    With the ID of a memory, only to that one. The number of a change is what undo takes.
    """
    with cli.open() as memory:
        entries = memory.history(memory_id, user_id=cli.user_id, limit=limit, before=before)
        texts = {} if cli.json or memory_id else _contents_by_change(memory, entries, cli.user_id)
    if cli.json:
        print_json({"results": [entry.to_dict() for entry in entries]})
        return
    if not entries:
        print_line(
            f"Nothing has happened to the memories of user {cli.user_id}", " before that." if before else " yet."
        )
        return
    rows = [
        TableRow(
            (str(entry.id), format_short_time(entry.at), entry.verb, entry.by.who, entry.memory_id),
            notes=[*texts.get(entry.id, ()), *_describe_change(entry)],
        )
        for entry in entries
    ]
    print_table([_CHANGE_COLUMN, _TIME_COLUMN, _KIND_COLUMN, _AUTHOR_COLUMN, ID_COLUMN], rows)
    if len(entries) == limit and entries[-1].id > 1:
        print_line(dim(f"There may be more; go on with --before {entries[-1].id}"), err=True)


def _contents_by_change(memory: Memory, entries: Sequence[HistoryEntry], user: str) -> dict[int, list[str]]:
    """What the memory of each line said after it; those that were erased say nothing."""
    texts: dict[int, list[str]] = {}
    first = min((entry.id for entry in entries), default=0)
    for id in {entry.memory_id for entry in entries}:
        with suppress(NotFound):
            content: Any = memory.get(id, user_id=user).content
            for line in _entries_since(memory, id, first, user):
                texts[line.id] = [str(content)[:_MAX_CONTENT_CHARS]]
                content = (line.before or {}).get("content", content)
    return texts


def _entries_since(memory: Memory, id: str, first: int, user: str) -> Iterator[HistoryEntry]:
    """All lines of a memory from the newest on, back to the first that counts."""
    before = None
    while lines := memory.history(id, user_id=user, limit=_PAGE_SIZE, before=before):
        yield from lines
        if (before := lines[-1].id) <= first or len(lines) < _PAGE_SIZE:
            return


def _describe_change(entry: HistoryEntry) -> list[str]:
    """What changed, in words, and why."""
    parts = [f"undoes {entry.undoes}"] if entry.undoes is not None else []
    if entry.before is not None:
        parts += [
            f"{name}: {_format_value(entry.before.get(name))} → {_format_value(after)}"
            for name, after in entry.after.items()
        ]
    if entry.by.why:
        parts.append(f"why: {entry.by.why}")
    return parts


def _format_value(value: Any) -> str:
    return "none" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
