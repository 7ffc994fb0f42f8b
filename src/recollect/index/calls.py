"""Blocking clients of vector databases, called from threads of their own: one that hangs holds up nobody else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from recollect.errors import IndexUnavailable, InvalidInput
from recollect.index.engine import is_hash

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
