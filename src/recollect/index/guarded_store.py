"""Calls of vector databases: in threads for blocking clients, with a timeout and a circuit breaker for searches."""

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
    """Runs blocking calls of one client in its own threads; raises IndexUnavailable for the client's errors."""

    def __init__(self, name: str, errors: tuple[type[Exception], ...]) -> None:
        self._name = name
        self._errors = errors
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="recollect-index")

    async def run(self, call: Callable[[], _T]) -> _T:
        """Return the result of the call, or raise IndexUnavailable."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, call)
        except self._errors as error:
            # The full message can contain an address with a password.
            message = str(error).partition("\n")[0][:120]
            raise IndexUnavailable(f"{self._name}: {type(error).__name__} {message}".strip()) from error

    def close(self) -> None:
        """Cancel waiting calls, and wait for none."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def require_hash(text: str) -> str:
    """Return the text if it is a hash; raise InvalidInput for any other text, which could inject a query."""
    if not is_hash(text):
        raise InvalidInput("vector databases receive hashes of users and places, not names")
    return text


_log = logging.getLogger("recollect")


class GuardedStore:
    """Searches a store with a timeout and a circuit breaker; `hashes_names` for one that stores no names."""

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
        """Return whether the breaker is open."""
        return self._breaker.is_open

    @property
    def last_error(self) -> str:
        """Return what is wrong; empty if nothing is."""
        if self.unavailable_since is None:
            return ""
        return (
            f"{self._store.name} does not answer since {self.unavailable_since:%H:%M:%S} UTC: the ledger is searched"
        )

    def request_permit(self) -> Permit:
        """Return whether the caller may call the store, as a probe or not at all."""
        return self._breaker.permit()

    async def nearest(
        self, user: str, vector: Vector, *, places: Sequence[str], limit: int, permit: Permit = Permit.CALL
    ) -> ScoredRows:
        """Return the store's nearest rows, or raise IndexUnavailable after the timeout."""
        if self._hashes_names:
            user, places = hash_user(user), [hash_place(place) for place in places]
        try:
            async with asyncio.timeout(self._timeout_s):
                scored = await self._store.nearest(user, vector, places=places, limit=limit)
        except IndexNotReady:
            # It answered; other users can be searched.
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
            _log.info("%s is available again", self._store.name)

    def _record_failure(self, permit: Permit) -> None:
        self._breaker.record_failure(permit)
        if self._breaker.is_open and self.unavailable_since is None:
            self.unavailable_since = now()
            BREAKER_OPEN.set(1, "index")
            _log.warning("%s", self.last_error)
