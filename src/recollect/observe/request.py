"""Which request a line of the log belongs to."""

from __future__ import annotations

from contextvars import ContextVar

request_id: ContextVar[str] = ContextVar("recollect_request_id", default="")
