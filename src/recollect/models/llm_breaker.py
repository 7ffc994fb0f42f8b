"""The circuit breakers of models, one for each model, URL and key."""

from __future__ import annotations

import hashlib
from weakref import WeakValueDictionary

from recollect.aio.breaker import Breaker, Permit
from recollect.errors import CircuitOpen
from recollect.observability.metrics import BREAKER_OPEN

_breakers: WeakValueDictionary[tuple[str, str, bytes], LlmBreaker] = WeakValueDictionary()


class LlmBreaker(Breaker):
    """A breaker that knows its model, and sets the metric."""

    def __init__(self, model: str, url: str) -> None:
        super().__init__()
        self.name = f"{model} at {url}"

    def admit(self, *, yields: bool = False) -> Permit:
        """Return the permission to call; raise CircuitOpen instead of a denial."""
        if (permit := self.permit(yields=yields)) is Permit.DENY:
            raise self.error("no call was made")
        return permit

    def record(self, permit: Permit, *, failed: bool) -> None:
        """Record the outcome of a call."""
        if failed:
            self.record_failure(permit)
        else:
            self.record_success(permit)
        BREAKER_OPEN.set(any(each.is_open for each in _breakers.values()), "llm")

    def error(self, reason: str) -> CircuitOpen:
        """Return the error of a call while it is open."""
        wait_s = self.retry_after_s
        return CircuitOpen(f"{self.name} keeps failing, and calls are paused: {reason}", retry_after_s=wait_s)


def breaker_of(model: str, url: str, api_key: str) -> LlmBreaker:
    """Return the breaker of a model; `url` is shown to operators and must hold no password.

    Keys have limits of their own: one that is rate limited must not pause the calls with another.
    """
    key_digest = hashlib.sha256(api_key.encode()).digest()
    return _breakers.setdefault((model, url, key_digest), LlmBreaker(model, url))


def describe_open_breakers() -> str:
    """Return which models are not called at the moment; empty if there is none."""
    names = sorted({each.name for each in _breakers.values() if each.is_open})
    return f"{', '.join(names)} keeps failing; calls are paused, and jobs wait" if names else ""
