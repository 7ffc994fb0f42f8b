"""Forward bytes between two sockets, such as across network namespaces."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def relay(near: Streams, connect: Callable[[], Awaitable[Streams]]) -> None:
    """Connect a connection to a new one, until either ends."""
    try:
        far = await connect()
    except OSError:
        near[1].close()
        return
    with suppress(OSError, asyncio.CancelledError):
        await asyncio.wait(
            [asyncio.create_task(_pump(near[0], far[1])), asyncio.create_task(_pump(far[0], near[1]))],
            return_when=asyncio.FIRST_COMPLETED,
        )
    near[1].close()
    far[1].close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while some := await reader.read(1 << 16):
            writer.write(some)
            await writer.drain()


class LocalPort:
    """A port of 127.0.0.1 that forwards to a socket in a folder, in a thread, until it is closed."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self.number = 0
        self._thread = threading.Thread(target=self._run, name="recollect-relay", daemon=True)
        self._thread.start()
        self._ready.wait()

    def close(self) -> None:
        """Close the port."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self) -> None:
        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await relay((reader, writer), lambda: asyncio.open_unix_connection(self._socket))

        server = self._loop.run_until_complete(asyncio.start_server(connected, "127.0.0.1", 0))
        self.number = server.sockets[0].getsockname()[1]
        self._ready.set()
        self._loop.run_forever()
        server.close()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()
