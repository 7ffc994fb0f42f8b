"""Exit codes, and the names of errors in JSON."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import IntEnum

import click

from recollect import errors


class ExitCode(IntEnum):
    """Exit codes of `recollect`."""

    OK = 0
    UNEXPECTED = 1
    INVALID = 2
    NOT_FOUND = 3
    CONFLICT = 4
    UNAVAILABLE = 5
    DAMAGED = 6
    MISSING = 7
    INTERRUPTED = 130
    BROKEN_PIPE = 141


EXIT_CODES: Mapping[type[BaseException], ExitCode] = {
    errors.InvalidInput: ExitCode.INVALID,
    errors.Unauthenticated: ExitCode.INVALID,
    errors.NotAllowed: ExitCode.INVALID,
    errors.NotFound: ExitCode.NOT_FOUND,
    errors.Conflict: ExitCode.CONFLICT,
    errors.QuotaReached: ExitCode.CONFLICT,
    errors.Unavailable: ExitCode.UNAVAILABLE,
    errors.ToolFailed: ExitCode.UNEXPECTED,
    errors.StoreCorrupt: ExitCode.DAMAGED,
    errors.StoreTooNew: ExitCode.DAMAGED,
    errors.Unsupported: ExitCode.MISSING,
    errors.MissingExtra: ExitCode.MISSING,
    errors.RecollectError: ExitCode.UNEXPECTED,
    click.ClickException: ExitCode.INVALID,
    click.Abort: ExitCode.INTERRUPTED,
    KeyboardInterrupt: ExitCode.INTERRUPTED,
    BrokenPipeError: ExitCode.BROKEN_PIPE,
    OSError: ExitCode.UNAVAILABLE,
}


def exit_code_for(kind: type[BaseException]) -> ExitCode:
    """Return the exit code of an error class, or of its nearest base class."""
    return next((EXIT_CODES[each] for each in kind.__mro__ if each in EXIT_CODES), ExitCode.UNEXPECTED)


def error_name(error: BaseException) -> str:
    """Return the name of an error in JSON, such as not_found."""
    if isinstance(error, click.ClickException):
        return "usage"
    if isinstance(error, errors.RecollectError):
        return re.sub(r"(?<!^)(?=[A-Z])", "_", type(error).__name__).lower()
    return "unavailable" if isinstance(error, OSError) else "unexpected"
