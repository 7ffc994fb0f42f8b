"""Use AsyncMemory for many users concurrently."""

import asyncio

from recollect import AsyncMemory


async def main() -> None:
    async with AsyncMemory() as memory:
        await asyncio.gather(*(memory.add(f"Likes colour number {n}", user_id=f"user-{n}") for n in range(20)))
        hits = await memory.search("favourite colour", user_id="user-7")
        print(len(hits), hits[0].memory)


asyncio.run(main())
