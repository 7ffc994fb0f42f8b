"""recollect jobs"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import click

from recollect.cli.command import Command
from recollect.cli.filters import enum_choice
from recollect.cli.given import CliContext, pass_cli
from recollect.cli.numbers import limit_option
from recollect.cli.records import format_short_time, pluralize
from recollect.cli.table import Column, TableRow, print_table
from recollect.cli.terminal import bold, dim, print_json, print_line
from recollect.errors import NotFound
from recollect.model.job import Job, JobState

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
    whose="everyone",
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
            _print_changed(cli, job, _change_job(memory.replay_jobs, job, _REPLAYABLE), "replayed")
        elif cancel is not None:
            job = _find_job(cli, memory, cancel)
            _print_changed(cli, job, _change_job(memory.cancel_jobs, job, _CANCELLABLE), "cancelled")
        else:
            _print_jobs(cli, memory.jobs(user_id=cli.user, states=states, limit=limit))


def _find_job(cli: CliContext, memory: Memory, id: str) -> Job:
    """The job of an id; whose it is need not be said of one that the list shows."""
    if cli.user:
        return memory.job(id, user_id=cli.user)
    for states in ((), _REPLAYABLE):
        for job in memory.jobs(states=states, limit=_MAX_JOBS):
            if job.id == id:
                return job
    raise NotFound(f"no job {id}; of an old one, say whose it is with --user")


def _change_job(change: Callable[..., list[Job]], job: Job, states: Sequence[JobState]) -> list[Job]:
    return change([job.id], user_id=job.scope.user) if job.state in states else []


def _replay_all(cli: CliContext, memory: Memory) -> list[Job]:
    replayed: list[Job] = []
    while batch := memory.jobs(user_id=cli.user, states=_REPLAYABLE, limit=_MAX_JOBS):
        # One that fails for good while this goes on is left for the next time.
        new = [job for job in batch if job.id not in {each.id for each in replayed}]
        if not new:
            break
        for user in {job.scope.user for job in new}:
            replayed += memory.replay_jobs([job.id for job in new if job.scope.user == user], user_id=user)
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
