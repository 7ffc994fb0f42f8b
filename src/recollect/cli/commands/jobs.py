"""recollect jobs"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import click

from recollect.cli.command import Command
from recollect.cli.filters import choice
from recollect.cli.given import Given, pass_given
from recollect.cli.numbers import limit_option
from recollect.cli.records import counted, short_time
from recollect.cli.table import Column, Row, print_table
from recollect.cli.terminal import bold, dim, print_json, say
from recollect.errors import NotFound
from recollect.model.job import Job, JobState

if TYPE_CHECKING:
    from recollect.sync import Memory

_COLUMNS = [
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
_AT_ONCE = 1000


@click.command(
    cls=Command,
    whose="everyone",
    examples=("recollect jobs", "recollect jobs --state dead", "recollect jobs --replay all --user alex"),
)
@click.option("--state", "states", **choice(JobState), multiple=True, help="Only jobs in this state.")
@click.option("--replay", metavar="JOB", help="Have a dead or cancelled job done after all; 'all' for all of them.")
@click.option("--cancel", metavar="JOB", help="Keep a job from having any effect.")
@limit_option()
@pass_given
def jobs(given: Given, states: tuple[str, ...], replay: str | None, cancel: str | None, limit: int) -> None:
    """Show the work behind the answers, and set right what failed.

    What is said is learned from by jobs. One that fails is tried again; after its last try it is dead, and waits here
    until it is replayed.
    """
    if replay is not None and cancel is not None:
        raise click.UsageError("Give either --replay or --cancel.", click.get_current_context())
    if (replay is not None or cancel is not None) and states:
        raise click.UsageError("--state is for the list.", click.get_current_context())
    with given.open() as memory:
        if replay == "all":
            _say_all_replayed(given, _replay_all(given, memory))
        elif replay is not None:
            job = _named(given, memory, replay)
            _say_changed(given, job, _change(memory.replay_jobs, job, _REPLAYABLE), "replayed")
        elif cancel is not None:
            job = _named(given, memory, cancel)
            _say_changed(given, job, _change(memory.cancel_jobs, job, _CANCELLABLE), "cancelled")
        else:
            _say_listed(given, memory.jobs(user_id=given.user, states=states, limit=limit))


def _named(given: Given, memory: Memory, id: str) -> Job:
    """The job of an id; whose it is need not be said of one that the list shows."""
    if given.user:
        return memory.job(id, user_id=given.user)
    for states in ((), _REPLAYABLE):
        for job in memory.jobs(states=states, limit=_AT_ONCE):
            if job.id == id:
                return job
    raise NotFound(f"no job {id}; of an old one, say whose it is with --user")


def _change(change: Callable[..., list[Job]], job: Job, states: Sequence[JobState]) -> list[Job]:
    return change([job.id], user_id=job.scope.user) if job.state in states else []


def _replay_all(given: Given, memory: Memory) -> list[Job]:
    replayed: list[Job] = []
    while found := memory.jobs(user_id=given.user, states=_REPLAYABLE, limit=_AT_ONCE):
        # One that fails for good while this goes on is left for the next time.
        new = [job for job in found if job.id not in {each.id for each in replayed}]
        if not new:
            break
        for user in {job.scope.user for job in new}:
            replayed += memory.replay_jobs([job.id for job in new if job.scope.user == user], user_id=user)
    return replayed


def _say_all_replayed(given: Given, replayed: list[Job]) -> None:
    if given.json:
        print_json({"results": [job.to_dict() for job in replayed]})
    elif replayed:
        say(f"Replayed {counted(len(replayed), 'job')}.")
    else:
        say("There is nothing to replay: no job is dead or cancelled.")


def _say_changed(given: Given, job: Job, changed: list[Job], how: str) -> None:
    if given.json:
        print_json({"results": [each.to_dict() for each in changed]})
    elif changed:
        say(f"{how.capitalize()} ", bold(job.id), dim(f"  {job.kind} of user {job.scope.user}"))
    else:
        say(bold(job.id), f" is {job.state}: there is nothing to be {how}.")


def _say_listed(given: Given, found: list[Job]) -> None:
    if given.json:
        print_json({"results": [job.to_dict() for job in found]})
        return
    if not found:
        say("There are no such jobs.")
        return
    print_table(_COLUMNS, [_row(job) for job in found])
    if any(job.state is JobState.DEAD for job in found):
        say(dim("recollect jobs --replay JOB has a dead one done after all"), err=True)


def _row(job: Job) -> Row:
    cells = (
        job.id,
        short_time(job.due_at),
        job.kind,
        job.state,
        str(job.tries),
        job.scope.user,
        job.scope.session,
    )
    return Row(cells, notes=[note for note in (job.error, _doubts(job)) if note])


def _doubts(job: Job) -> str:
    """Return how many statements of the LLM name something that was not said; the job's result lists them."""
    count = len((job.result or {}).get("unverified") or ())
    if not count:
        return ""
    return f"{counted(count, 'statement')} of the LLM with a number or name that was not said; --json lists them"
