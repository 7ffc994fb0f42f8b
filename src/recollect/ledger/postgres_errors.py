"""Translate errors of PostgreSQL, and mask addresses."""

from __future__ import annotations

from recollect.errors import (
    Conflict,
    DiskFull,
    InvalidInput,
    InvalidText,
    MissingExtra,
    RecollectError,
    StoreBusy,
    StoreUnavailable,
)

try:
    from asyncpg import exceptions as pg
except ImportError as error:
    raise MissingExtra("PostgreSQL", "postgres") from error

BUSY_S = 30.0
CONNECTION_ERRORS = (pg.PostgresConnectionError, ConnectionError, pg.AdminShutdownError, pg.CrashShutdownError)
# Nothing was committed, and a retry can succeed.
RETRYABLE_ERRORS = (
    pg.SerializationError,
    pg.DeadlockDetectedError,
    pg.InvalidCachedStatementError,
    *CONNECTION_ERRORS,
)
# Not permitted, or not at the moment.
REFUSED_ERRORS = (
    pg.InsufficientPrivilegeError,
    pg.LockNotAvailableError,
    pg.DeadlockDetectedError,
    pg.UndefinedFileError,
    pg.FeatureNotSupportedError,
)
ERRORS = (pg.PostgresError, pg.InterfaceError, pg.InternalClientError, OSError)


def mask_dsn(dsn: str) -> str:
    """Return an address without its password."""
    scheme, separator, rest = dsn.partition("://")
    login, at, location = rest.rpartition("@")
    user = login.partition(":")[0]
    if not separator or "?" in user or "/" in user:
        return "PostgreSQL"
    location, _, options = location.partition("?")
    hosts = [option for option in options.split("&") if option.startswith(("host=", "port="))]
    return f"{scheme}://{user}{at}{location}{'?' if hosts else ''}{'&'.join(hosts)}"


def translate_error(error: Exception, where: str) -> RecollectError:
    """Return the `RecollectError` for an error of PostgreSQL or the network, with a remedy."""
    match error:
        case pg.UniqueViolationError():
            return Conflict("another active memory says the same or holds the same key; forget it first")
        case pg.DiskFullError():
            return DiskFull(f"no space left at {where}: free some; nothing that was acknowledged is lost")
        case pg.CharacterNotInRepertoireError() | pg.UntranslatableCharacterError():
            return InvalidText(f"the text contains a character that {where} cannot store")
        case pg.DataError() if isinstance(error.__cause__, UnicodeError):
            return InvalidText("the text holds half of a character (a lone surrogate); remove it and try again")
        case pg.DataError() | ValueError():
            # Its message repeats the value.
            return InvalidInput(f"{where} cannot store a value ({type(error).__name__})")
        case pg.ProgramLimitExceededError():
            return InvalidInput(f"an id or a key is too long for {where}")
        case pg.LockNotAvailableError():
            return StoreBusy(f"{where} was locked by other writers for {BUSY_S:.0f} s; retry later")
        case TimeoutError():
            return StoreUnavailable(f"{where} did not answer in time: check that it is up and not overloaded")
        case pg.TooManyConnectionsError():
            return StoreUnavailable(
                f"{where} has no connection left: raise its max_connections, or run fewer processes"
            )
        case pg.InvalidAuthorizationSpecificationError():
            return StoreUnavailable(f"{where} refused the login: check the user, the password and pg_hba.conf")
        case pg.InvalidCatalogNameError():
            return StoreUnavailable(f"{where}: {error}; make it with: createdb")
        case pg.InsufficientPrivilegeError() if "row-level security" in str(error):
            return Conflict(f"{where} refused to write a row of another user; nothing was changed")
        case pg.InsufficientPrivilegeError() | pg.InvalidSchemaNameError():
            return StoreUnavailable(f"{where}: {error}; give the user its own schema, or GRANT CREATE, USAGE on one")
        case OSError() | pg.PostgresConnectionError() | pg.OperatorInterventionError():
            return StoreUnavailable(f"{where} cannot be reached: check that it is running and the address ({error})")
        case pg.PostgresError():
            # Only its message: the details contain values.
            return StoreUnavailable(f"{where}: {str(error.args[0] if error.args else type(error).__name__)[:200]}")
        case _:
            return StoreUnavailable(f"{where}: {error}")
