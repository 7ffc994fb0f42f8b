"""recollect sessions and end-run."""

from __future__ import annotations

from typing import Any

import click

from recollect.cli.context import CliContext, command, pass_cli, to_results, usage_error
from recollect.cli.options import limit_option
from recollect.cli.output import Column, TableRow, bold, dim, format_short_time, print_json, print_line
from recollect.model.job import Job, JobState
from recollect.model.turn import Conversation
from recollect.sessions.agent_runs import StepKind

_SESSION_COLUMNS = [
    Column("SESSION", style="bold"),
    Column("LAST", style="dim"),
    Column("TURNS", right=True),
    Column("LEARNED", right=True),
    Column("STATE"),
    Column("PROJECT", optional=True),
]
_MAX_SESSIONS = 1000


@command(
    "recollect sessions --user alex", "recollect sessions --project trip --user alex", scope="user project session"
)
@click.option("--end", is_flag=True, help="End the session of --session, and wait for the result.")
@limit_option()
@pass_cli
def sessions(cli: CliContext, end: bool, limit: int) -> None:
    """List sessions, or end one.

    The latest is first. A session ends by itself after a time without turns. At its end it becomes an episode, and
    its important memories are promoted to later sessions.
    """
    if end and not cli.session:
        raise usage_error("Name the session with --session.")
    with cli.open() as memory:
        if end and cli.session:
            scope = {"user_id": cli.user_id, "session_id": cli.session}
            _print_ended(cli, memory.sessions.end(**scope, project_id=cli.project, wait=True))
            return
        found = memory.sessions.list(user_id=cli.user_id, limit=_MAX_SESSIONS)
    matching = [
        each
        for each in found
        if cli.project in (None, each.scope.project) and cli.session in (None, each.scope.session)
    ]
    empty = f"User {cli.user_id} has no {'such session' if cli.project or cli.session else 'sessions yet'}."
    cli.reply_rows(matching[:limit], _SESSION_COLUMNS, _session_row, empty)


def _print_ended(cli: CliContext, job: Job) -> None:
    if cli.json:
        print_json(job.to_dict())
    elif job.state is JobState.DONE:
        print_line("Ended session ", bold(job.scope.session))
        for reason in (job.result or {}).get("reasons") or []:
            print_line(dim(f"  {reason}"))
    else:
        why = f": {job.error}" if job.error else ""
        print_line("Session ", bold(job.scope.session), f" has not ended yet ({job.state}){why}")
        print_line(dim("recollect jobs shows its progress"), err=True)


def _session_row(conversation: Conversation) -> TableRow:
    cells = (
        conversation.scope.session or "(none)",
        format_short_time(conversation.last_turn_at) if conversation.last_turn_at else "",
        f"{conversation.turn_count:,}",
        f"{conversation.learned_to:,}",
        "ended" if conversation.closed_at else "open",
        conversation.scope.project,
    )
    return TableRow(cells, notes=[conversation.summary] if conversation.summary else [])


_STEP_KINDS = ", ".join(StepKind)


@command(
    "recollect end-run 'Deploy the shop' --step 'action: build' --step 'action: push' --answer 'It is live' "
    "--session monday --user alex",
    "recollect end-run 'Deploy the shop' --lesson 'The tests take an hour' --failed --session monday --user alex",
    scope="user project session",
    name="end-run",
)
@click.argument("goal")
@click.option("--step", "steps", multiple=True, metavar="KIND:TEXT", help=f"A step, in order; KIND is {_STEP_KINDS}.")
@click.option("--answer", default="", metavar="TEXT", help="The result.")
@click.option("--lesson", "lessons", multiple=True, metavar="TEXT", help="A lesson for later runs.")
@click.option("--succeeded/--failed", "success", default=None, help="The outcome, if known.")
@click.option("--run-id", metavar="ID", help="Its name: a run reported twice is stored once.")
@pass_cli
def end_run(cli: CliContext, /, goal: str, steps: tuple[str, ...], **result: Any) -> None:
    """Record the result of an agent's run.

    It is recorded with its session. A run with several steps or a lesson becomes an episode with its goal, steps,
    outcome and lessons.
    """
    if not cli.session:
        raise usage_error("Name the session with --session.")
    with cli.open() as memory:
        outcomes = memory.sessions.end_run(
            goal,
            user_id=cli.user_id,
            project_id=cli.project,
            session_id=cli.session,
            steps=[_parse_step(step) for step in steps],
            **result,
        )
    cli.reply(to_results(outcomes), "Recorded the run in session ", bold(cli.session))
    for outcome in () if cli.json else outcomes:
        print_line(f"  {outcome.record.category}: ", bold(outcome.id), dim(f"  {outcome.memory[:200]}"))


def _parse_step(text: str) -> dict[str, str]:
    kind, colon, content = text.partition(":")
    if not colon or kind.strip() not in tuple(StepKind):
        raise usage_error(f"A step is KIND:TEXT with one of {_STEP_KINDS}.")
    return {"kind": kind.strip(), "content": content.strip()}
