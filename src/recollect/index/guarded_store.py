"""Blocking clients of vector databases, called from threads of their own: one that hangs holds up nobody else."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

from recollect.aio.breaker import Breaker, Permit
from recollect.errors import IndexNotReady, IndexUnavailable, InvalidInput
from recollect.index.vector_store import VectorStore, hash_place, hash_user, is_hash
from recollect.ledger.types import ScoredRows
from recollect.model.times import now
from recollect.observability.metrics import BREAKER_OPEN

if TYPE_CHECKING:
    from recollect.model.change import Vector


_T = TypeVar("_T")
_THREADS = 8


class ThreadCalls:
    """Runs calls of one client; the errors that are its own become an IndexUnavailable."""

    def __init__(self, name: str, errors: tuple[type[Exception], ...]) -> None:
        self._name = name
        self._errors = errors
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="recollect-index")

    async def run(self, call: Callable[[], _T]) -> _T:
        """What the call gives, or an IndexUnavailable."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, call)
        except self._errors as error:
            # A message can hold an address with a password; the kind and a few words are enough.
            message = str(error).partition("\n")[0][:120]
            raise IndexUnavailable(f"{self._name}: {type(error).__name__} {message}".strip()) from error

    def close(self) -> None:
        """Wait for no call."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def require_hash(text: str) -> str:
    """The mark; an InvalidInput for any other text, which could be more than a value in a question."""
    if not is_hash(text):
        raise InvalidInput("an engine is told marks, not names")
    return text


_log = logging.getLogger("recollect")


class GuardedStore:
    """Asks an engine for the nearest rows, by marks if it is one that has to be fed."""

    def __init__(
        self, store: VectorStore, *, timeout_s: float, hashes_names: bool, breaker: Breaker | None = None
    ) -> None:
        self._store = store
        self._timeout_s = timeout_s
        self._hashes_names = hashes_names
        self._breaker = breaker or Breaker()
        self.unavailable_since: datetime | None = None

    @property
    def is_unavailable(self) -> bool:
        """Whether asking now would be of no use, but for one who tries whether it is back."""
        return self._breaker.is_open

    @property
    def last_error(self) -> str:
        """What is wrong; empty if nothing is."""
        if self.unavailable_since is None:
            return ""
        return (
            f"{self._store.name} does not answer since {self.unavailable_since:%H:%M:%S} UTC: the ledger is searched"
        )

    def request_permit(self) -> Permit:
        """What the caller may do now: ask, ask as the one who tries, or do without."""
        return self._breaker.permit()

    async def nearest(
        self, user: str, vector: Vector, *, places: Sequence[str], limit: int, permit: Permit = Permit.CALL
    ) -> ScoredRows:
        """What the engine suggests, or an IndexUnavailable, soon."""
        if self._hashes_names:
            user, places = hash_user(user), [hash_place(place) for place in places]
        try:
            async with asyncio.timeout(self._timeout_s):
                scored = await self._store.nearest(user, vector, places=places, limit=limit)
        except IndexNotReady:
            # It answered: whoever has been taken in can go on asking.
            self._record_success(permit)
            raise
        except (IndexUnavailable, TimeoutError) as error:
            self._record_failure(permit)
            raise IndexUnavailable(f"{self._store.name} does not answer ({type(error).__name__})") from error
        self._record_success(permit)
        return scored

    def _record_success(self, permit: Permit) -> None:
        self._breaker.record_success(permit)
        if self.unavailable_since is not None and not self._breaker.is_open:
            self.unavailable_since = None
            BREAKER_OPEN.set(0, "index")
            _log.info("%s answers again", self._store.name)

    def _record_failure(self, permit: Permit) -> None:
        self._breaker.record_failure(permit)
        if self._breaker.is_open and self.unavailable_since is None:
            self.unavailable_since = now()
            BREAKER_OPEN.set(1, "index")
            _log.warning("%s", self.last_error)
