"""recollect sessions"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from recollect.cli.context import CliContext, Command, pass_cli
from recollect.cli.options import limit_option
from recollect.cli.rendering import format_short_time
from recollect.cli.table import Column, TableRow, print_table
from recollect.cli.terminal import bold, dim, print_json, print_line
from recollect.model.job import Job, JobState
from recollect.model.turn import Conversation
from recollect.sessions.agent_runs import StepKind

if TYPE_CHECKING:
    from recollect.sync import Memory


_SESSION_COLUMNS = [
    Column("SESSION", style="bold"),
    Column("LAST", style="dim"),
    Column("TURNS", right=True),
    Column("LEARNED", right=True),
    Column("STATE"),
    Column("PROJECT", optional=True),
]
_MAX_SESSIONS = 1000


@click.command(
    cls=Command,
    scope_options="user project session",
    examples=("recollect sessions --user alex", "recollect sessions --project trip --user alex"),
)
@click.option("--end", is_flag=True, help="End the session named by --session, and wait for what comes of it.")
@limit_option()
@pass_cli
def sessions(cli: CliContext, end: bool, limit: int) -> None:
    """List sessions, or end one.

    The latest is first. A session ends by itself when nothing was said for a while. At its end it becomes an episode,
    and what matters of it goes to the long term.
    """
    if end and not cli.session:
        raise click.UsageError("Say which one with --session.", click.get_current_context())
    with cli.open() as memory:
        if end and cli.session:
            scope = {"user_id": cli.user_id, "session_id": cli.session}
            _print_ended(cli, memory.sessions.end(**scope, project_id=cli.project, wait=True))
        else:
            _print_sessions(cli, _matching_sessions(cli, memory)[:limit])


def _matching_sessions(cli: CliContext, memory: Memory) -> list[Conversation]:
    conversations = memory.sessions.list(user_id=cli.user_id, limit=_MAX_SESSIONS)
    return [
        each
        for each in conversations
        if cli.project in (None, each.scope.project) and cli.session in (None, each.scope.session)
    ]


def _print_ended(cli: CliContext, job: Job) -> None:
    if cli.json:
        print_json(job.to_dict())
        return
    if job.state is JobState.DONE:
        print_line("Ended session ", bold(job.scope.session))
        for reason in (job.result or {}).get("reasons") or []:
            print_line(dim(f"  {reason}"))
        return
    why = f": {job.error}" if job.error else ""
    print_line("Session ", bold(job.scope.session), f" has not ended yet ({job.state}){why}")
    print_line(dim("recollect jobs shows how it goes on"), err=True)


def _print_sessions(cli: CliContext, conversations: list[Conversation]) -> None:
    if cli.json:
        print_json({"results": [each.to_dict() for each in conversations]})
    elif conversations:
        print_table(_SESSION_COLUMNS, [_session_row(each) for each in conversations])
    elif cli.project or cli.session:
        print_line(f"User {cli.user_id} has no such session.")
    else:
        print_line(f"User {cli.user_id} has no sessions yet.")


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


@click.command(
    "end-run",
    cls=Command,
    scope_options="user project session",
    examples=(
        "recollect end-run 'Deploy the shop' --step 'action: build' --step 'action: push' --answer 'It is live' "
        "--session monday --user alex",
        "recollect end-run 'Deploy the shop' --lesson 'The tests take an hour' --failed --session monday --user alex",
    ),
)
@click.argument("goal")
@click.option(
    "--step", "steps", multiple=True, metavar="KIND:TEXT", help=f"A step, in order; a KIND is {_STEP_KINDS}."
)
@click.option("--answer", default="", metavar="TEXT", help="What came of it.")
@click.option("--lesson", "lessons", multiple=True, metavar="TEXT", help="What is to be kept for the next time.")
@click.option("--succeeded/--failed", "success", default=None, help="How it went, if that is known.")
@click.option("--run-id", metavar="ID", help="Its name: the same run told of twice is kept once.")
@pass_cli
def end_run(
    cli: CliContext,
    goal: str,
    steps: tuple[str, ...],
    answer: str,
    lessons: tuple[str, ...],
    success: bool | None,
    run_id: str | None,
) -> None:
    """Keep what an agent's run came to.

    It is noted with its session. If it was a task, one of several steps or one that taught something, it becomes an
    episode with its goal, steps, outcome and lessons.
    """
    if not cli.session:
        raise click.UsageError("Say in which session with --session.", click.get_current_context())
    with cli.open() as memory:
        outcomes = memory.sessions.end_run(
            goal,
            user_id=cli.user_id,
            project_id=cli.project,
            session_id=cli.session,
            steps=[_parse_step(step) for step in steps],
            answer=answer,
            success=success,
            lessons=lessons,
            run_id=run_id,
        )
    if cli.json:
        print_json({"results": [outcome.to_dict() for outcome in outcomes]})
        return
    print_line("Noted the run in session ", bold(cli.session))
    for outcome in outcomes:
        print_line(f"  {outcome.record.category}: ", bold(outcome.id), dim(f"  {outcome.memory[:200]}"))


def _parse_step(text: str) -> dict[str, str]:
    kind, colon, content = text.partition(":")
    if not colon or kind.strip() not in tuple(StepKind):
        raise click.UsageError(f"A step is KIND:TEXT with one of {_STEP_KINDS}.", click.get_current_context())
    return {"kind": kind.strip(), "content": content.strip()}
