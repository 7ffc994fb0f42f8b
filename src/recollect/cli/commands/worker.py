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

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


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
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in _SIGNALS:
        loop.add_signal_handler(number, stop.set)
    async with given.open_async() as memory:
        work = await memory.start_worker()
        if not given.json:
            say("Working as ", bold(work.name), dim("  Ctrl-C stops it"))
            sys.stdout.flush()
        await stop.wait()
        for number in _SIGNALS:
            # Whoever cannot wait is obeyed.
            loop.remove_signal_handler(number)
        await work.stop()
        return work.done
