"""recollect list"""

from __future__ import annotations

import click

from recollect.cli.asking import AS_OF, moment
from recollect.cli.command import Command
from recollect.cli.filters import filter_options
from recollect.cli.given import Given, pass_given
from recollect.cli.numbers import limit_option
from recollect.cli.records import CATEGORY, CREATED, ID, MEMORY, short_time
from recollect.cli.table import Column, print_table
from recollect.cli.terminal import dim, print_json, say
from recollect.model.memory import Status
from recollect.model.query import EVERYTHING, Filter

_STATUS = Column("STATUS", style="yellow")
_STATUSES = click.Choice([*(status.value for status in Status), "all"])
_STATUS_HELP = f"{', '.join(Status)} or all. [default: active]"


@click.command(
    "list",
    cls=Command,
    whose="user project session",
    examples=(
        "recollect list --user alex",
        "recollect list --user alex --category preference --since 2026-03-01 --limit 50",
        "recollect list --user alex --status forgotten",
        "recollect list --user alex --as-of 2026-03-15",
    ),
)
@limit_option("How many at once.")
@click.option("--cursor", metavar="CURSOR", help="Go on after the page that ended with this.")
@click.option("--status", type=_STATUSES, metavar="STATUS", default="active", help=_STATUS_HELP)
@click.option("--turns", is_flag=True, help="What was said as well.")
@click.option("--oldest", is_flag=True, help="Oldest first.")
@AS_OF
@filter_options
@pass_given
def list_(
    given: Given,
    limit: int,
    cursor: str | None,
    status: str,
    turns: bool,
    oldest: bool,
    as_of: str | None,
    filter: Filter,
) -> None:
    """List memories, newest first."""
    statuses = tuple(Status) if status == "all" else (Status(status),)
    with given.open() as memory:
        page = memory.get_all(
            **given.place,
            filters=filter,
            statuses=statuses,
            turns=turns,
            order="oldest" if oldest else "newest",
            limit=limit,
            cursor=cursor,
            as_of=moment(as_of, name="--as-of"),
        )
    if given.json:
        print_json(page.to_dict())
        return
    if not len(page):
        _say_nothing(given, narrowed=filter != EVERYTHING or status != "active" or bool(cursor or as_of))
        return
    shown = [ID, CREATED, CATEGORY, *([_STATUS] if len(statuses) > 1 else []), MEMORY]
    rows = [
        (
            record.id,
            short_time(record.created_at),
            record.category,
            *([record.status] if len(statuses) > 1 else []),
            record.content,
        )
        for record in page
    ]
    print_table(shown, rows)
    if page.cursor:
        say(dim(f"There is more; go on with --cursor {page.cursor}"), err=True)


def _say_nothing(given: Given, *, narrowed: bool) -> None:
    if narrowed:
        say(f"User {given.user_id} has nothing like that. ", dim("Try it with fewer filters, or --status all."))
    else:
        say(
            f"User {given.user_id} has no memories yet. ",
            dim('Begin with: recollect add "..."; or see: recollect users'),
        )
