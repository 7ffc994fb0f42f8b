"""Publish and subscribe between processes by LISTEN and NOTIFY.

Nothing is published inside the transaction that changes something, because transactions with a NOTIFY commit one
after another in the whole database. It is published right after, without a sync to disk.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from recollect.errors import RecollectError, StoreUnavailable, Unavailable
from recollect.ledger.postgres import ERRORS, translate_error

if TYPE_CHECKING:
    from recollect.ledger.postgres import PostgresEngine


# A payload has less than 8000 bytes.
MAX_PAYLOAD_CHARS = 7900
ANSWER_TIMEOUT_S = 5.0
# After so long without a message a ping to oneself checks the connection.
IDLE_PING_S = 20.0
_PING = "ping"
_PAUSE_S = 1.0


class PostgresPubSub:
    """Publishes and receives texts, each on its own connection, which is opened on demand."""

    def __init__(self, engine: PostgresEngine, channel: str) -> None:
        self._engine = engine
        self._channel = channel
        self._publisher: Any = None
        self._retry_after = 0.0

    async def publish(self, text: str) -> None:
        """Send a text to all listeners; raise Unavailable if that is not possible now."""
        if asyncio.get_running_loop().time() < self._retry_after:
            raise Unavailable("PostgreSQL does not answer")
        try:
            if self._publisher is None:
                self._publisher = await self._engine.connect()
                await self._publisher.execute("SET synchronous_commit = off", timeout=ANSWER_TIMEOUT_S)
            for part in split_payload(text):
                notify = "SELECT pg_notify($1, $2)"
                await self._publisher.execute(notify, self._channel, part, timeout=ANSWER_TIMEOUT_S)
        except (*ERRORS, RecollectError) as error:
            self._retry_after = asyncio.get_running_loop().time() + _PAUSE_S
            self._disconnect()
            raise Unavailable(f"the change could not be published ({type(error).__name__})") from None

    async def listen(self) -> AsyncIterator[str]:
        """Yield an empty text once listening, then what is published; raise Unavailable when it ends."""
        messages: asyncio.Queue[str | None] = asyncio.Queue()
        try:
            connection = await self._engine.connect()
        except RecollectError as error:
            raise Unavailable(str(error)) from None
        try:
            connection.add_termination_listener(lambda *_: messages.put_nowait(None))
            await connection.add_listener(self._channel, lambda *args: messages.put_nowait(args[-1]))
            # Behind a pooler LISTEN may succeed and receive nothing, so a ping must arrive first.
            await self._ping(connection)
            wait_s, is_listening = ANSWER_TIMEOUT_S, False
            while True:
                try:
                    async with asyncio.timeout(wait_s):
                        text = await messages.get()
                except TimeoutError:
                    if wait_s == ANSWER_TIMEOUT_S:
                        raise StoreUnavailable("notifications through PostgreSQL do not arrive") from None
                    await self._ping(connection)
                    wait_s = ANSWER_TIMEOUT_S
                    continue
                if text is None:
                    raise StoreUnavailable("the connection to PostgreSQL ended")
                wait_s = IDLE_PING_S
                if text != _PING or not is_listening:
                    yield "" if text == _PING else text
                is_listening = True
        except ERRORS as error:
            raise Unavailable(str(translate_error(error, self._engine.where))) from None
        finally:
            connection.terminate()

    async def _ping(self, connection: Any) -> None:
        await connection.execute("SELECT pg_notify($1, $2)", self._channel, _PING, timeout=ANSWER_TIMEOUT_S)

    def _disconnect(self) -> None:
        if self._publisher is not None:
            self._publisher.terminate()
            self._publisher = None

    async def close(self) -> None:
        """Close the connection."""
        self._disconnect()


def split_payload(text: str) -> list[str]:
    """Split a text at spaces into messages that fit."""
    chunks: list[str] = []
    for word in text.split():
        if chunks and len(chunks[-1]) + len(word) < MAX_PAYLOAD_CHARS:
            chunks[-1] += f" {word}"
        else:
            chunks.append(word)
    return chunks
