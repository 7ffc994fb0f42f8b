"""recollect jobs"""

from __future__ import annotations

import asyncio
import getpass
import signal
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from recollect.cli.context import CliContext, Command, pass_cli
from recollect.cli.options import enum_choice, limit_option
from recollect.cli.rendering import ID_COLUMN, format_short_time, pluralize, print_redacted
from recollect.cli.table import Column, TableRow, print_table
from recollect.cli.terminal import bold, dim, print_json, print_line
from recollect.errors import NotFound
from recollect.maintenance.tasks import MaintenanceReport, MaintenanceTask, parse_tasks
from recollect.model.change import Actor
from recollect.model.job import Job, JobState
from recollect.model.memory import MemoryRecord

if TYPE_CHECKING:
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


@click.command(
    cls=Command,
    scope_options="everyone",
    examples=("recollect jobs", "recollect jobs --state dead", "recollect jobs --replay all --user alex"),
)
@click.option("--state", "states", **enum_choice(JobState), multiple=True, help="Only jobs in this state.")
@click.option("--replay", metavar="JOB", help="Have a dead or cancelled job done after all; 'all' for all of them.")
@click.option("--cancel", metavar="JOB", help="Keep a job from having any effect.")
@limit_option()
@pass_cli
def jobs(cli: CliContext, states: tuple[str, ...], replay: str | None, cancel: str | None, limit: int) -> None:
    """Show the work behind the answers, and set right what failed.

    What is said is learned from by jobs. One that fails is tried again; after its last try it is dead, and waits here
    until it is replayed.
    """
    if replay is not None and cancel is not None:
        raise click.UsageError("Give either --replay or --cancel.", click.get_current_context())
    if (replay is not None or cancel is not None) and states:
        raise click.UsageError("--state is for the list.", click.get_current_context())
    with cli.open() as memory:
        if replay == "all":
            _print_replayed(cli, _replay_all(cli, memory))
        elif replay is not None:
            job = _find_job(cli, memory, replay)
            _print_changed(cli, job, _change_job(memory.jobs.replay, job, _REPLAYABLE), "replayed")
        elif cancel is not None:
            job = _find_job(cli, memory, cancel)
            _print_changed(cli, job, _change_job(memory.jobs.cancel, job, _CANCELLABLE), "cancelled")
        else:
            _print_jobs(cli, memory.jobs.list(user_id=cli.user, states=states, limit=limit))


def _find_job(cli: CliContext, memory: Memory, id: str) -> Job:
    """The job of an id; whose it is need not be said of one that the list shows."""
    if cli.user:
        return memory.jobs.get(id, user_id=cli.user)
    for states in ((), _REPLAYABLE):
        for job in memory.jobs.list(states=states, limit=_MAX_JOBS):
            if job.id == id:
                return job
    raise NotFound(f"no job {id}; of an old one, say whose it is with --user")


def _change_job(change: Callable[..., list[Job]], job: Job, states: Sequence[JobState]) -> list[Job]:
    return change([job.id], user_id=job.scope.user) if job.state in states else []


def _replay_all(cli: CliContext, memory: Memory) -> list[Job]:
    replayed: list[Job] = []
    while batch := memory.jobs.list(user_id=cli.user, states=_REPLAYABLE, limit=_MAX_JOBS):
        # One that fails for good while this goes on is left for the next time.
        new = [job for job in batch if job.id not in {each.id for each in replayed}]
        if not new:
            break
        for user in {job.scope.user for job in new}:
            replayed += memory.jobs.replay([job.id for job in new if job.scope.user == user], user_id=user)
    return replayed


def _print_replayed(cli: CliContext, replayed: list[Job]) -> None:
    if cli.json:
        print_json({"results": [job.to_dict() for job in replayed]})
    elif replayed:
        print_line(f"Replayed {pluralize(len(replayed), 'job')}.")
    else:
        print_line("There is nothing to replay: no job is dead or cancelled.")


def _print_changed(cli: CliContext, job: Job, changed: list[Job], how: str) -> None:
    if cli.json:
        print_json({"results": [each.to_dict() for each in changed]})
    elif changed:
        print_line(f"{how.capitalize()} ", bold(job.id), dim(f"  {job.kind} of user {job.scope.user}"))
    else:
        print_line(bold(job.id), f" is {job.state}: there is nothing to be {how}.")


def _print_jobs(cli: CliContext, listed: list[Job]) -> None:
    if cli.json:
        print_json({"results": [job.to_dict() for job in listed]})
        return
    if not listed:
        print_line("There are no such jobs.")
        return
    print_table(_JOB_COLUMNS, [_job_row(job) for job in listed])
    if any(job.state is JobState.DEAD for job in listed):
        print_line(dim("recollect jobs --replay JOB has a dead one done after all"), err=True)


def _job_row(job: Job) -> TableRow:
    cells = (
        job.id,
        format_short_time(job.due_at),
        job.kind,
        job.state,
        str(job.tries),
        job.scope.user,
        job.scope.session,
    )
    return TableRow(cells, notes=[note for note in (job.error, _describe_unverified(job)) if note])


def _describe_unverified(job: Job) -> str:
    """Return how many statements of the LLM name something that was not said; the job's result lists them."""
    count = len((job.result or {}).get("unverified") or ())
    if not count:
        return ""
    return f"{pluralize(count, 'statement')} of the LLM with a number or name that was not said; --json lists them"


@click.command(cls=Command, scope_options="", examples=("recollect worker", "recollect worker --once"))
@click.option("--once", is_flag=True, help="Do what is due now, then stop.")
@pass_cli
def worker(cli: CliContext, once: bool) -> None:
    """Do the work behind the answers, as a process of its own.

    The server works by itself; this is for more of it, or for a ledger that programs write to. Ctrl-C stops it after
    what is under way, a second Ctrl-C at once. Several workers share the work.
    """
    done = asyncio.run(_run_once(cli) if once else _run_until_stopped(cli))
    if cli.json:
        print_json({"done": done})
    else:
        print_line(f"Did {pluralize(done, 'job')}.")


async def _run_once(cli: CliContext) -> int:
    async with cli.open_async() as memory:
        return await memory.jobs.run_pending()


async def _run_until_stopped(cli: CliContext) -> int:
    signals = _StopSignals()
    async with cli.open_async() as memory:
        running = await memory.jobs.start_worker()
        if not cli.json:
            print_line("Working as ", bold(running.name), dim("  Ctrl-C stops it"))
            sys.stdout.flush()
        await signals.stop.wait()
        # Another embedding model came with another worker.
        first_worker, running = running, await memory.jobs.start_worker()
        stopping, forced = asyncio.create_task(running.stop()), asyncio.create_task(signals.force.wait())
        await asyncio.wait((stopping, forced), return_when=asyncio.FIRST_COMPLETED)
        if not stopping.done():
            # What was under way is given back, for another to do.
            await running.stop(grace_s=0)
            await stopping
            raise KeyboardInterrupt
        forced.cancel()
        return running.done + (first_worker.done if first_worker is not running else 0)


class _StopSignals:
    """Whether this process was told to stop, and told again."""

    def __init__(self) -> None:
        self.stop = asyncio.Event()
        self.force = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, self._on_signal)

    def _on_signal(self) -> None:
        (self.force if self.stop.is_set() else self.stop).set()


_DEFAULT_TASKS = (MaintenanceTask.EXPIRE, MaintenanceTask.QUOTA, MaintenanceTask.PRUNE, MaintenanceTask.CONSOLIDATE)
_MAX_STEPS_SHOWN = 20


@click.command(
    cls=Command,
    scope_options="user project",
    examples=(
        "recollect upkeep --user alex --dry-run",
        "recollect upkeep consolidate --user alex",
        "recollect upkeep reflect --user alex",
    ),
)
@click.argument("chores", metavar="[CHORE]...", nargs=-1)
@click.option("--dry-run", is_flag=True, help="Only say what it would do.")
@pass_cli
def upkeep(cli: CliContext, chores: tuple[str, ...], dry_run: bool) -> None:
    """Put a user's memories in order now.

    CHORE is expire, quota, prune, consolidate or reflect; without one, all but reflect are done. What a chore does is
    one change in history, and undo takes it back whole.
    """
    tasks = parse_tasks(chores) if chores else list(_DEFAULT_TASKS)
    with cli.open() as memory:
        reports = memory.acting_as("cli").admin.maintain(
            tasks, user_id=cli.user_id, project_id=cli.project, dry_run=dry_run
        )
    if cli.json:
        print_json({"results": [report.to_dict() for report in reports]})
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
        print_line(dim(f"  left alone: {why}"))
    for id in report.stale:
        print_line(dim(f"  stale: {id} rests on what is no longer remembered"))
    if report.more:
        print_line(dim("  there is more to do; run it again"))


_REVIEW_COLUMNS = [
    ID_COLUMN,
    Column("VERSION", style="dim"),
    Column("SINCE", style="dim"),
    Column("CATEGORY"),
    Column("MEMORY"),
]


@click.command(
    cls=Command,
    scope_options="user project session",
    examples=(
        "recollect review --user alex",
        'recollect review --edit ID --text "Answer in English" --user alex',
        "recollect review --approve ID --user alex",
    ),
)
@click.option("--approve", metavar="ID", help="Let it be recalled from now on.")
@click.option("--reject", metavar="ID", help="Forget it, unused.")
@click.option("--edit", metavar="ID", help="Give it other words, with --text; it goes on waiting.")
@click.option("--text", metavar="TEXT", help="The words for --edit.")
@click.option("--expect-version", type=int, metavar="N", help="Only if nobody has changed it since version N.")
@click.option("--by", metavar="NAME", help="Who decides. [default: who is logged in]")
@pass_cli
def review(
    cli: CliContext,
    approve: str | None,
    reject: str | None,
    edit: str | None,
    text: str | None,
    expect_version: int | None,
    by: str | None,
) -> None:
    """List what waits for a person to look at it, and decide.

    Instructions that the user did not give are kept but not used before a person approves them.
    """
    if sum(option is not None for option in (approve, reject, edit)) > 1:
        raise click.UsageError("Give one of --approve, --reject and --edit.", click.get_current_context())
    if (edit is None) != (text is None):
        raise click.UsageError("--edit and --text go together.", click.get_current_context())
    with cli.open() as memory:
        person = by or _login_name()
        reviews = memory.acting_as(person).reviews
        decision: Any = {"user_id": cli.user_id, "expected_version": expect_version}
        if approve:
            outcome, verb = reviews.approve(approve, by=person, actor=Actor.PERSON, **decision), "Approved"
        elif reject:
            outcome, verb = reviews.reject(reject, **decision), "Rejected"
        elif edit:
            outcome, verb = reviews.edit(edit, text, **decision), "Changed"
        else:
            _print_reviews(cli, list(memory.reviews.list(**cli.scope_args)))
            return
    if cli.json:
        print_json(outcome.to_dict())
    else:
        print_line(f"{verb} ", bold(outcome.id), dim(f"  {outcome.memory[:200]}"))
        print_redacted(outcome.redacted)


def _login_name() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "cli"


def _print_reviews(cli: CliContext, waiting: list[MemoryRecord]) -> None:
    if cli.json:
        print_json({"results": [record.to_dict() for record in waiting]})
    elif not waiting:
        print_line(f"Nothing of user {cli.user_id} waits for review.")
    else:
        print_table(
            _REVIEW_COLUMNS,
            [
                TableRow(
                    (
                        record.id,
                        str(record.version),
                        format_short_time(record.created_at),
                        record.category,
                        record.content,
                    ),
                    notes=[str(record.detail["review"])] if record.detail.get("review") else [],
                )
                for record in waiting
            ],
        )
