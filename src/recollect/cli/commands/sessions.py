"""recollect sessions"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from recollect.cli.command import Command
from recollect.cli.given import Given, pass_given
from recollect.cli.numbers import limit_option
from recollect.cli.records import short_time
from recollect.cli.table import Column, Row, print_table
from recollect.cli.terminal import bold, dim, print_json, say
from recollect.model.job import Job, JobState
from recollect.model.turn import Conversation

if TYPE_CHECKING:
    from recollect.sync import Memory

_COLUMNS = [
    Column("SESSION", style="bold"),
    Column("LAST", style="dim"),
    Column("TURNS", right=True),
    Column("LEARNED", right=True),
    Column("STATE"),
    Column("PROJECT", optional=True),
]
_ALL = 1000


@click.command(
    cls=Command,
    whose="user project session",
    examples=("recollect sessions --user alex", "recollect sessions --project trip --user alex"),
)
@click.option("--end", is_flag=True, help="End the session named by --session, and wait for what comes of it.")
@limit_option()
@pass_given
def sessions(given: Given, end: bool, limit: int) -> None:
    """List sessions, or end one.

    The latest is first. A session ends by itself when nothing was said for a while. At its end it becomes an episode,
    and what matters of it goes to the long term.
    """
    if end and not given.session:
        raise click.UsageError("Say which one with --session.", click.get_current_context())
    with given.open() as memory:
        if end and given.session:
            place = {"user_id": given.user_id, "session_id": given.session}
            _say_ended(given, memory.end_session(**place, project_id=given.project, wait=True))
        else:
            _say_listed(given, _found(given, memory)[:limit])


def _found(given: Given, memory: Memory) -> list[Conversation]:
    found = memory.sessions(user_id=given.user_id, limit=_ALL)
    return [
        each
        for each in found
        if given.project in (None, each.scope.project) and given.session in (None, each.scope.session)
    ]


def _say_ended(given: Given, job: Job) -> None:
    if given.json:
        print_json(job.to_dict())
        return
    if job.state is JobState.DONE:
        say("Ended session ", bold(job.scope.session))
        for reason in (job.result or {}).get("reasons") or []:
            say(dim(f"  {reason}"))
        return
    why = f": {job.error}" if job.error else ""
    say("Session ", bold(job.scope.session), f" has not ended yet ({job.state}){why}")
    say(dim("recollect jobs shows how it goes on"), err=True)


def _say_listed(given: Given, found: list[Conversation]) -> None:
    if given.json:
        print_json({"results": [each.to_dict() for each in found]})
    elif found:
        print_table(_COLUMNS, [_row(each) for each in found])
    elif given.project or given.session:
        say(f"User {given.user_id} has no such session.")
    else:
        say(f"User {given.user_id} has no sessions yet.")


def _row(found: Conversation) -> Row:
    cells = (
        found.scope.session or "(none)",
        short_time(found.last_turn_at) if found.last_turn_at else "",
        f"{found.turn_count:,}",
        f"{found.learned_to:,}",
        "ended" if found.closed_at else "open",
        found.scope.project,
    )
    return Row(cells, notes=[found.summary] if found.summary else [])
