"""The request id of log lines, and errors without content."""

from __future__ import annotations

import traceback
from contextvars import ContextVar
from pathlib import PurePath

request_id: ContextVar[str] = ContextVar("recollect_request_id", default="")


def describe_error(error: BaseException) -> str:
    """Return the class and place of an error, such as "KeyError in embed.py, line 28"."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" in {PurePath(frames[-1].filename).name}, line {frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}{where}"


def format_traceback(error: BaseException) -> str:
    """Return the traceback of an error without its message, which may quote content."""
    return f"Traceback:\n{''.join(traceback.format_tb(error.__traceback__))}{type(error).__name__}"
