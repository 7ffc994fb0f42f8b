"""A process that writes memories and mirrors them until it is killed: `python mirror_child.py HOME SEED`."""

from __future__ import annotations

import asyncio
import random
import sys
from pathlib import Path

from mirror_samples import BY, HOME, kept, until

from recollect.errors import RecollectError
from recollect.model.memory import Status


async def main(home: Path, seed: int) -> None:
    chance = random.Random(seed)
    async with kept(home) as opened:
        opened.mirror.start()
        await until(lambda: (home / ".recollect" / "mirror.db").exists())
        print("ready", flush=True)
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


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
