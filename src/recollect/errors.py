"""All errors that Recollect raises on purpose.

RecollectError
├── InvalidInput             an argument is invalid; the message says what to change
│   ├── InvalidText          the text is empty, too long, or has characters that cannot be stored
│   ├── InvalidFilter        an unknown field or operator, or a value of the wrong type
│   ├── InvalidSettings      a setting, a settings file or a preset is invalid
│   └── MissingUser          the caller may act for many users, and names none
├── Unauthenticated          the API key or token is missing, unknown, revoked or expired
├── NotAllowed               the caller's rights do not include the operation
├── NotFound                 no such object of this user; ids of other users raise the same
├── Conflict                 a concurrent change, or a violation of a constraint of the ledger
│   ├── StaleVersion         the expected version is outdated
│   └── IdempotencyReuse     the idempotency key was used for a different request
├── QuotaReached             the user has the maximum number of records; delete some first
├── Unsupported              the backend does not support the operation
├── Unavailable              a dependency is temporarily unavailable               (retryable)
│   ├── StoreUnavailable     the ledger cannot be reached or opened
│   │   ├── StoreBusy        other writers held the lock of the ledger for too long
│   │   └── DiskFull         no disk space is left for the ledger
│   ├── Backlog              too many jobs of the user are waiting
│   │   └── TooFast          the rate limit is exceeded; `retry_after_s` says how long to wait
│   ├── IndexUnavailable     the vector database does not answer; searches use the ledger
│   │   ├── IndexNotReady    the vector database is not synchronised for this user yet
│   │   └── IndexInUse       another process has opened the file of the vector database
│   ├── CacheUnavailable     Redis does not answer; everything works without it
│   ├── UpstreamUnavailable  the chat endpoint does not answer
│   │   └── UpstreamBroken   the chat endpoint closed the connection during its answer
│   └── ModelUnavailable     an embedder, reranker or LLM does not answer
│       ├── CircuitOpen      the model failed several times; calls are paused for `retry_after_s`
│       └── BrokenAnswer     a model returned an unusable answer
├── ToolFailed               a tool of an agent failed; the message is for the model
├── StoreCorrupt             the file of the ledger is damaged
├── StoreTooNew              the ledger was written by a newer version of Recollect
└── MissingExtra             an optional dependency is not installed; the message has the pip command

The exceptions of a library are translated in the one file that imports it.
"""


class RecollectError(Exception):
    """The base of all errors that Recollect raises on purpose."""

    retryable = False


class InvalidInput(RecollectError):
    """An argument is invalid."""


class InvalidText(InvalidInput):
    """The text is empty, too long, or has characters that cannot be stored."""


class InvalidFilter(InvalidInput):
    """The filter has an unknown field or operator, or a value of the wrong type."""


class InvalidSettings(InvalidInput):
    """A setting, a settings file or a preset is invalid."""


class MissingUser(InvalidInput):
    """The caller may act for many users, and names none."""


class Unauthenticated(RecollectError):
    """The API key or token is missing, unknown, revoked or expired."""


class NotAllowed(RecollectError):
    """The caller's rights do not include the operation."""


class NotFound(RecollectError):
    """The user has no such object; ids of other users raise the same error."""


class Conflict(RecollectError):
    """The object was changed concurrently, or the change would violate a constraint of the ledger."""


class StaleVersion(Conflict):
    """The object is not at the expected version."""


class IdempotencyReuse(Conflict):
    """The idempotency key was used for a different request."""


class QuotaReached(RecollectError):
    """The user has the maximum number of records; nothing was stored, and a retry fails until some are deleted."""


class Unsupported(RecollectError):
    """The backend does not support the operation."""


class Unavailable(RecollectError):
    """A dependency is temporarily unavailable; a later retry may succeed."""

    retryable = True


class Backlog(Unavailable):
    """Too many jobs of the user are waiting; nothing was stored."""


class TooFast(Backlog):
    """The rate limit is exceeded; nothing was stored. Retry after `retry_after_s`."""

    def __init__(self, message: str, *, retry_after_s: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class IndexUnavailable(Unavailable):
    """The vector database does not answer; searches use the ledger, and operators are warned."""


class IndexNotReady(IndexUnavailable):
    """The vector database answers, but is not synchronised for this user yet."""


class IndexInUse(IndexUnavailable):
    """Another process has opened the file of the vector database, which one at a time can."""


class CacheUnavailable(Unavailable):
    """Redis does not answer; everything works without it, so callers never see this error."""


class StoreUnavailable(Unavailable):
    """The ledger cannot be reached or opened."""


class StoreBusy(StoreUnavailable):
    """Other writers held the lock of the ledger for too long."""


class DiskFull(StoreUnavailable):
    """No disk space is left for the ledger."""


class UpstreamUnavailable(Unavailable):
    """The chat endpoint does not answer."""


class UpstreamBroken(UpstreamUnavailable):
    """The chat endpoint closed the connection during its answer."""


class ModelUnavailable(Unavailable):
    """An embedder, reranker or LLM did not answer in time, or returned an error."""


class CircuitOpen(ModelUnavailable):
    """The model failed several times in a row; the next call goes out after `retry_after_s`."""

    def __init__(self, message: str, *, retry_after_s: float = 0.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class BrokenAnswer(ModelUnavailable):
    """A model returned an unusable answer, with its cost as far as known.

    `cut_off` is set if the answer reached the token limit, so that a higher limit may help.
    """

    def __init__(
        self, message: str, *, calls: int = 1, tokens_in: int = 0, tokens_out: int = 0, cut_off: bool = False
    ) -> None:
        super().__init__(message)
        self.cut_off = cut_off
        self.calls = calls
        self.tokens_in = tokens_in
        self.tokens_out = tokens_out


class ToolFailed(RecollectError):
    """A tool of an agent failed; the message is for the model that called it."""


class StoreCorrupt(RecollectError):
    """The file of the ledger is damaged."""


class StoreTooNew(RecollectError):
    """The ledger was written by a newer version of Recollect."""


class MissingExtra(RecollectError):
    """An optional dependency is not installed."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} needs an optional dependency: pip install 'recollect[{extra}]'")
