"""recollect history"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from recollect.cli.command import Command
from recollect.cli.given import Given, pass_given
from recollect.cli.numbers import WholeNumber, limit_option
from recollect.cli.records import ID, short_time
from recollect.cli.table import Column, Row, print_table
from recollect.cli.terminal import dim, print_json, say
from recollect.errors import NotFound
from recollect.model.change import Entry

if TYPE_CHECKING:
    from recollect.sync import Memory

_SHOWN_CHARS = 100
_PAGE = 100
_CHANGE = Column("CHANGE", style="bold", right=True)
_WHEN = Column("WHEN", style="dim")
_WHAT = Column("WHAT")
_WHO = Column("WHO", optional=True)


@click.command(cls=Command, examples=("recollect history --user alex", "recollect history ID --user alex"))
@click.argument("memory_id", metavar="[ID]", required=False)
@limit_option("How many at once.")
@click.option("--before", type=WholeNumber(1), metavar="CHANGE", help="Only changes before this number.")
@pass_given
def history(given: Given, memory_id: str | None, limit: int, before: int | None) -> None:
    """Tell what happened: who, when, why and what was before.

    With the ID of a memory, only to that one. The number of a change is what undo takes.
    """
    with given.open() as memory:
        entries = memory.history(memory_id, user_id=given.user_id, limit=limit, before=before)
        texts = {} if given.json or memory_id else _texts(memory, entries, given.user_id)
    if given.json:
        print_json({"results": [entry.to_dict() for entry in entries]})
        return
    if not entries:
        say(f"Nothing has happened to the memories of user {given.user_id}", " before that." if before else " yet.")
        return
    rows = [
        Row(
            (str(entry.id), short_time(entry.at), entry.verb, entry.by.who, entry.memory_id),
            notes=[*texts.get(entry.id, ()), *_details(entry)],
        )
        for entry in entries
    ]
    print_table([_CHANGE, _WHEN, _WHAT, _WHO, ID], rows)
    if len(entries) == limit and entries[-1].id > 1:
        say(dim(f"There may be more; go on with --before {entries[-1].id}"), err=True)


def _texts(memory: Memory, entries: Sequence[Entry], user: str) -> dict[int, list[str]]:
    """What the memory of each line said after it; those that were erased say nothing."""
    texts: dict[int, list[str]] = {}
    first = min((entry.id for entry in entries), default=0)
    for id in {entry.memory_id for entry in entries}:
        with suppress(NotFound):
            content: Any = memory.get(id, user_id=user).content
            for line in _lines_since(memory, id, first, user):
                texts[line.id] = [str(content)[:_SHOWN_CHARS]]
                content = (line.before or {}).get("content", content)
    return texts


def _lines_since(memory: Memory, id: str, first: int, user: str) -> Iterator[Entry]:
    """All lines of a memory from the newest on, back to the first that counts."""
    before = None
    while lines := memory.history(id, user_id=user, limit=_PAGE, before=before):
        yield from lines
        if (before := lines[-1].id) <= first or len(lines) < _PAGE:
            return


def _details(entry: Entry) -> list[str]:
    """What changed, in words, and why."""
    parts = [f"undoes {entry.undoes}"] if entry.undoes is not None else []
    if entry.before is not None:
        parts += [
            f"{name}: {_plain(entry.before.get(name))} → {_plain(after)}" for name, after in entry.after.items()
        ]
    if entry.by.why:
        parts.append(f"why: {entry.by.why}")
    return parts


def _plain(value: Any) -> str:
    return "none" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
