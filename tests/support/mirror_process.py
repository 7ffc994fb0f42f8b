"""A process to be killed: it mirrors a folder, and adds, changes and forgets memories.

For each line on standard input a process is forked from one that has imported everything, since starting Python for
each would take most of the time.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
from pathlib import Path

from recollect.errors import RecollectError
from recollect.mirror import mirror as _imported  # noqa: F401
from recollect.model.memory import Status
from tests.support.mirror_samples import BY, HOME, mirrored_service, until


async def main(home: Path, seed: int) -> None:
    chance = random.Random(seed)
    async with mirrored_service(home) as opened:
        opened.mirror.start()
        await until(lambda: (home / ".recollect" / "mirror.db").exists())
        print(f"ready {os.getpid()}", flush=True)
        count = 0
        while True:
            count += 1
            ids = [record.id for record in await opened.all("default", Status.ACTIVE)]
            what = chance.random()
            try:
                if what < 0.5 or len(ids) < 5:
                    await opened.add(f"fact {seed} {count}")
                elif what < 0.85:
                    await opened.service.update(HOME, chance.choice(ids), {"content": f"said {seed} {count}"}, by=BY)
                elif len(ids) > 10:
                    await opened.service.forget(HOME, chance.choice(ids), by=BY)
            except RecollectError as error:
                # A person deleted it at the same time.
                print(f"not done: {error}", file=sys.stderr)
            await asyncio.sleep(chance.random() * 0.02)


def serve() -> None:
    """Fork a process for each line with a folder and a seed, and print when it has ended."""
    print("there", flush=True)
    for line in sys.stdin:
        home, _, seed = line.strip().rpartition(" ")
        child = os.fork()
        if not child:
            try:
                asyncio.run(main(Path(home), int(seed)))
            finally:
                # The child must not continue with this loop.
                os._exit(1)
        os.waitpid(child, 0)
        print("ended", flush=True)


if __name__ == "__main__":
    serve()
