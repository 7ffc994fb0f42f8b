"""Which request a line of the log belongs to."""

from __future__ import annotations

import traceback
from contextvars import ContextVar
from pathlib import PurePath

request_id: ContextVar[str] = ContextVar("recollect_request_id", default="")


def describe_error(error: BaseException) -> str:
    """What kind of error it is and where it arose, such as "KeyError in embed.py, line 28"."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" in {PurePath(frames[-1].filename).name}, line {frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}{where}"


def format_traceback(error: BaseException) -> str:
    """The way the error came, line by line of the programs, without its words and those of what caused it."""
    return f"Traceback:\n{''.join(traceback.format_tb(error.__traceback__))}{type(error).__name__}"
