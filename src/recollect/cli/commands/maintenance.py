"""recollect jobs, worker, upkeep, review, sessions and end-run."""

from __future__ import annotations

import asyncio
import getpass
import signal
import sys
from typing import TYPE_CHECKING, Any

import click

from recollect.cli.context import CliContext, command, to_results, usage_error
from recollect.cli.options import VERSION_OPTION, enum_choice, limit_option
from recollect.cli.output import (
    ID_COLUMN,
    Column,
    TableRow,
    bold,
    dim,
    format_short_time,
    pluralize,
    print_line,
    print_redacted,
)
from recollect.errors import NotFound
from recollect.model.change import Actor
from recollect.model.job import Job, JobState
from recollect.model.memory import MemoryRecord
from recollect.model.turn import Conversation
from recollect.sessions.agent_runs import StepKind

if TYPE_CHECKING:
    from recollect.service.jobs import MaintenanceReport
    from recollect.sync import Memory


_JOB_COLUMNS = [
    Column("JOB", style="bold"),
    Column("DUE", style="dim"),
    Column("WHAT"),
    Column("STATE"),
    Column("TRIES", right=True, optional=True),
    Column("USER", optional=True),
    Column("SESSION", optional=True),
]
_REPLAYABLE = (JobState.DEAD, JobState.CANCELLED)
_CANCELLABLE = (JobState.WAITING, JobState.RUNNING)
_MAX_JOBS = 1000


@command("recollect jobs", "recollect jobs --state dead", "recollect jobs --replay all --user alex", scope="everyone")
@click.option("--state", "states", **enum_choice(JobState), multiple=True, help="Only jobs in this state.")
@click.option("--replay", metavar="JOB", help="Run a dead or cancelled job again; 'all' for all of them.")
@click.option("--cancel", metavar="JOB", help="Cancel a job.")
@limit_option()
def jobs(cli: CliContext, states: tuple[str, ...], replay: str | None, cancel: str | None, limit: int) -> None:
    """List background jobs, and replay or cancel them.

    Jobs learn from turns. A failed job is retried; after its last try it is dead until it is replayed.
    """
    if replay is not None and cancel is not None:
        raise usage_error("Give either --replay or --cancel.")
    if (replay is not None or cancel is not None) and states:
        raise usage_error("--state goes with the list only.")
    with cli.open() as memory:
        if replay == "all":
            replayed = _replay_all(cli, memory)
            message = f"Replayed {pluralize(len(replayed), 'job')}." if replayed else "No job is dead or cancelled."
            cli.reply(to_results(replayed), message)
        elif job_id := replay or cancel:
            _change_job(cli, memory, job_id, verb="replay" if replay else "cancel")
        else:
            listed = memory.jobs.list(user_id=cli.user, states=states, limit=limit)
            cli.reply_rows(listed, _JOB_COLUMNS, _job_row, "There are no such jobs.")
            if not cli.json and any(job.state is JobState.DEAD for job in listed):
                print_line(dim("recollect jobs --replay JOB runs a dead job again"), err=True)


def _change_job(cli: CliContext, memory: Memory, job_id: str, *, verb: str) -> None:
    job = _find_job(cli, memory, job_id)
    states, done = (_REPLAYABLE, "Replayed") if verb == "replay" else (_CANCELLABLE, "Cancelled")
    changed = getattr(memory.jobs, verb)([job.id], user_id=job.scope.user) if job.state in states else []
    if changed:
        cli.reply(to_results(changed), f"{done} ", bold(job.id), dim(f"  {job.kind} of user {job.scope.user}"))
    else:
        cli.reply(to_results([]), bold(job.id), f" is {job.state}: it cannot be {done.lower()}.")


def _find_job(cli: CliContext, memory: Memory, id: str) -> Job:
    """Return a job by its id; the user need not be named for a job that the list shows."""
    if cli.user:
        return memory.jobs.get(id, user_id=cli.user)
    for states in ((), _REPLAYABLE):
        for job in memory.jobs.list(states=states, limit=_MAX_JOBS):
            if job.id == id:
                return job
    raise NotFound(f"no job {id}; for an old one, name the user with --user")


def _replay_all(cli: CliContext, memory: Memory) -> list[Job]:
    replayed: list[Job] = []
    while batch := memory.jobs.list(user_id=cli.user, states=_REPLAYABLE, limit=_MAX_JOBS):
        # A job that dies again meanwhile is not replayed twice.
        new = [job for job in batch if job.id not in {each.id for each in replayed}]
        if not new:
            break
        for user in {job.scope.user for job in new}:
            replayed += memory.jobs.replay([job.id for job in new if job.scope.user == user], user_id=user)
    return replayed


def _job_row(job: Job) -> TableRow:
    due_at = format_short_time(job.due_at)
    cells = (job.id, due_at, job.kind, job.state, str(job.tries), job.scope.user, job.scope.session)
    unverified = len((job.result or {}).get("unverified") or ())
    statements = f"{pluralize(unverified, 'statement')} of the LLM with a number or name that was not said"
    notes = (job.error or "", f"{statements}; --json lists them" if unverified else "")
    return TableRow(cells, notes=[note for note in notes if note])


@command("recollect worker", "recollect worker --once", scope="")
@click.option("--once", is_flag=True, help="Run the jobs that are due, then stop.")
def worker(cli: CliContext, once: bool) -> None:
    """Run background jobs in this process.

    The server runs jobs itself; this adds capacity, or serves a ledger that other programs write to. Ctrl-C stops
    after the running jobs, a second Ctrl-C at once. Several workers share the jobs.
    """
    if once:
        with cli.open() as memory:
            done = memory.jobs.run_pending()
    else:
        done = asyncio.run(_run_until_stopped(cli))
    cli.reply({"done": done}, f"Did {pluralize(done, 'job')}.")


async def _run_until_stopped(cli: CliContext) -> int:
    stop, force = asyncio.Event(), asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, lambda: (force if stop.is_set() else stop).set())
    async with cli.open_async() as memory:
        running = await memory.jobs.start_worker()
        if not cli.json:
            print_line("Working as ", bold(running.name), dim("  Ctrl-C stops it"))
            sys.stdout.flush()
        await stop.wait()
        # A change of the embedding model replaces the worker.
        first_worker, running = running, await memory.jobs.start_worker()
        stopping, forced = asyncio.create_task(running.stop()), asyncio.create_task(force.wait())
        await asyncio.wait((stopping, forced), return_when=asyncio.FIRST_COMPLETED)
        if not stopping.done():
            # Release the running jobs for other workers.
            await running.stop(grace_s=0)
            await stopping
            raise KeyboardInterrupt
        forced.cancel()
        return running.done + (first_worker.done if first_worker is not running else 0)


_DEFAULT_TASKS = ("expire", "quota", "prune", "consolidate")
_MAX_STEPS_SHOWN = 20


@command(
    "recollect upkeep --user alex --dry-run",
    "recollect upkeep consolidate --user alex",
    "recollect upkeep reflect --user alex",
    scope="user project",
)
@click.argument("chores", metavar="[CHORE]...", nargs=-1)
@click.option("--dry-run", is_flag=True, help="Only print the changes.")
def upkeep(cli: CliContext, chores: tuple[str, ...], dry_run: bool) -> None:
    """Run maintenance on a user's memories now.

    CHORE is expire, quota, prune, consolidate or reflect; without one, all but reflect run. Each is one change in
    history, which undo reverts as a whole.
    """
    with cli.open() as memory:
        reports = memory.acting_as("cli").admin.maintain(
            chores or _DEFAULT_TASKS, user_id=cli.user_id, project_id=cli.project, dry_run=dry_run
        )
    if cli.replied(to_results(reports)):
        return
    for report in reports:
        _print_task_report(report)


def _print_task_report(report: MaintenanceReport) -> None:
    verb = "would change " if report.dry_run else "changed "
    print_line(bold(str(report.chore)), f": {verb}{pluralize(len(report.steps), 'memory', 'memories')}")
    for step in report.steps[:_MAX_STEPS_SHOWN]:
        print_line(f"  {step.verb}  {step.content[:200]}", dim(f"  {step.why}") if step.why else "")
    if len(report.steps) > _MAX_STEPS_SHOWN:
        print_line(dim(f"  and {len(report.steps) - _MAX_STEPS_SHOWN:,} more"))
    for why in report.left[:_MAX_STEPS_SHOWN]:
        print_line(dim(f"  unchanged: {why}"))
    for id in report.stale:
        print_line(dim(f"  stale: {id} was derived from memories that are gone"))
    if report.more:
        print_line(dim("  there is more to do; run it again"))


_REVIEW_COLUMNS = [
    ID_COLUMN,
    Column("VERSION", style="dim"),
    Column("SINCE", style="dim"),
    Column("CATEGORY"),
    Column("MEMORY"),
]


@command(
    "recollect review --user alex",
    'recollect review --edit ID --text "Answer in English" --user alex',
    "recollect review --approve ID --user alex",
    scope="user project session",
)
@click.option("--approve", metavar="ID", help="Approve it: it is recalled from now on.")
@click.option("--reject", metavar="ID", help="Forget it.")
@click.option("--edit", metavar="ID", help="Change its text to --text; it keeps waiting.")
@click.option("--text", metavar="TEXT", help="The text for --edit.")
@VERSION_OPTION
@click.option("--by", metavar="NAME", help="Who decides. [default: the login name]")
def review(
    cli: CliContext,
    approve: str | None,
    reject: str | None,
    edit: str | None,
    text: str | None,
    expect_version: int | None,
    by: str | None,
) -> None:
    """List memories that wait for review, and decide.

    Instructions that do not come from the user are not recalled before a person approves them.
    """
    if sum(option is not None for option in (approve, reject, edit)) > 1:
        raise usage_error("Give one of --approve, --reject and --edit.")
    if (edit is None) != (text is None):
        raise usage_error("--edit and --text go together.")
    with cli.open() as memory:
        reviewer = by or _login_name()
        reviews = memory.acting_as(reviewer).reviews
        decision: Any = {"user_id": cli.user_id, "expected_version": expect_version}
        if approve:
            outcome, verb = reviews.approve(approve, by=reviewer, actor=Actor.PERSON, **decision), "Approved"
        elif reject:
            outcome, verb = reviews.reject(reject, **decision), "Rejected"
        elif edit:
            outcome, verb = reviews.edit(edit, text, **decision), "Changed"
        else:
            empty = f"No memory of user {cli.user_id} waits for review."
            cli.reply_rows(reviews.list(**cli.scope_args), _REVIEW_COLUMNS, _review_row, empty)
            return
    cli.reply(outcome.to_dict(), f"{verb} ", bold(outcome.id), dim(f"  {outcome.memory[:200]}"))
    if not cli.json:
        print_redacted(outcome.redacted)


def _login_name() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "cli"


def _review_row(record: MemoryRecord) -> TableRow:
    created = format_short_time(record.created_at)
    reason = record.detail.get("review")
    cells = (record.id, str(record.version), created, record.category, record.content)
    return TableRow(cells, notes=[str(reason)] if reason else [])


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
    if cli.replied(job.to_dict()):
        return
    if job.state is JobState.DONE:
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
