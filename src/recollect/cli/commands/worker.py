"""recollect worker"""

from __future__ import annotations

import asyncio
import signal
import sys

import click

from recollect.cli.command import Command
from recollect.cli.given import CliContext, pass_cli
from recollect.cli.records import pluralize
from recollect.cli.terminal import bold, dim, print_json, print_line


@click.command(cls=Command, whose="", examples=("recollect worker", "recollect worker --once"))
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
        return await memory.work()


async def _run_until_stopped(cli: CliContext) -> int:
    signals = _StopSignals()
    async with cli.open_async() as memory:
        running = await memory.start_worker()
        if not cli.json:
            print_line("Working as ", bold(running.name), dim("  Ctrl-C stops it"))
            sys.stdout.flush()
        await signals.stop.wait()
        # Another embedding model came with another worker.
        first_worker, running = running, await memory.start_worker()
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
