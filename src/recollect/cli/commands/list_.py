"""recollect list"""

from __future__ import annotations

import click

from recollect.cli.asking import AS_OF_OPTION, parse_moment
from recollect.cli.command import Command
from recollect.cli.filters import filter_options
from recollect.cli.given import CliContext, pass_cli
from recollect.cli.numbers import limit_option
from recollect.cli.records import CATEGORY_COLUMN, CREATED_COLUMN, ID_COLUMN, MEMORY_COLUMN, format_short_time
from recollect.cli.table import Column, print_table
from recollect.cli.terminal import dim, print_json, print_line
from recollect.model.memory import Status
from recollect.model.query import EVERYTHING, Filter

_STATUS_COLUMN = Column("STATUS", style="yellow")
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
@AS_OF_OPTION
@filter_options
@pass_cli
def list_(
    cli: CliContext,
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
    with cli.open() as memory:
        page = memory.get_all(
            **cli.scope_args,
            filters=filter,
            statuses=statuses,
            turns=turns,
            order="oldest" if oldest else "newest",
            limit=limit,
            cursor=cursor,
            as_of=parse_moment(as_of, name="--as-of"),
        )
    if cli.json:
        print_json(page.to_dict())
        return
    if not len(page):
        _print_no_memories(cli, is_filtered=filter != EVERYTHING or status != "active" or bool(cursor or as_of))
        return
    columns = [
        ID_COLUMN,
        CREATED_COLUMN,
        CATEGORY_COLUMN,
        *([_STATUS_COLUMN] if len(statuses) > 1 else []),
        MEMORY_COLUMN,
    ]
    rows = [
        (
            record.id,
            format_short_time(record.created_at),
            record.category,
            *([record.status] if len(statuses) > 1 else []),
            record.content,
        )
        for record in page
    ]
    print_table(columns, rows)
    if page.cursor:
        print_line(dim(f"There is more; go on with --cursor {page.cursor}"), err=True)


def _print_no_memories(cli: CliContext, *, is_filtered: bool) -> None:
    if is_filtered:
        print_line(f"User {cli.user_id} has nothing like that. ", dim("Try it with fewer filters, or --status all."))
    else:
        print_line(
            f"User {cli.user_id} has no memories yet. ",
            dim('Begin with: recollect add "..."; or see: recollect users'),
        )
