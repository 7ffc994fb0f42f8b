"""Many users at once, without threads."""

import asyncio

from recollect import AsyncMemory


async def main() -> None:
    async with AsyncMemory() as memory:
        await asyncio.gather(*(memory.add(f"Likes colour number {n}", user_id=f"user-{n}") for n in range(20)))
        found = await memory.search("favourite colour", user_id="user-7")
        print(len(found), found[0].memory)


asyncio.run(main())
