"""recollect worker"""

from __future__ import annotations

import asyncio
import signal
import sys

import click

from recollect.cli.command import Command
from recollect.cli.given import Given, pass_given
from recollect.cli.records import counted
from recollect.cli.terminal import bold, dim, print_json, say


@click.command(cls=Command, whose="", examples=("recollect worker", "recollect worker --once"))
@click.option("--once", is_flag=True, help="Do what is due now, then stop.")
@pass_given
def worker(given: Given, once: bool) -> None:
    """Do the work behind the answers, as a process of its own.

    The server works by itself; this is for more of it, or for a ledger that programs write to. Ctrl-C stops it after
    what is under way, a second Ctrl-C at once. Several workers share the work.
    """
    done = asyncio.run(_once(given) if once else _for_ever(given))
    if given.json:
        print_json({"done": done})
    else:
        say(f"Did {counted(done, 'job')}.")


async def _once(given: Given) -> int:
    async with given.open_async() as memory:
        return await memory.work()


async def _for_ever(given: Given) -> int:
    told = _Told()
    async with given.open_async() as memory:
        work = await memory.start_worker()
        if not given.json:
            say("Working as ", bold(work.name), dim("  Ctrl-C stops it"))
            sys.stdout.flush()
        await told.stop.wait()
        # Another embedding model came with another worker.
        before, work = work, await memory.start_worker()
        patient, hurried = asyncio.create_task(work.stop()), asyncio.create_task(told.hurry.wait())
        await asyncio.wait((patient, hurried), return_when=asyncio.FIRST_COMPLETED)
        if not patient.done():
            # What was under way is given back, for another to do.
            await work.stop(grace_s=0)
            await patient
            raise KeyboardInterrupt
        hurried.cancel()
        return work.done + (before.done if before is not work else 0)


class _Told:
    """Whether this process was told to stop, and told again."""

    def __init__(self) -> None:
        self.stop = asyncio.Event()
        self.hurry = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, self._hear)

    def _hear(self) -> None:
        (self.hurry if self.stop.is_set() else self.stop).set()
