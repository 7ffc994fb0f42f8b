"""Every error Recollect raises on purpose.

RecollectError
├── InvalidInput          what was given cannot be used; the message says what to change
│   ├── InvalidText       empty, too long, or holding characters no store can keep
│   ├── InvalidFilter     an unknown field, operator or a value of the wrong kind
│   ├── InvalidSettings   a setting, a file of settings or a preset is wrong
│   └── MissingUser       whoever asks may speak for many, and does not say for whom
├── Unauthenticated       nobody we know is asking: no key, or none that holds
├── NotAllowed            we know who is asking, and they may not do that
├── NotFound              no such thing for this user; a foreign id answers the same
├── Conflict              someone else changed it first, or it would break a promise
│   ├── StaleVersion      it is no longer at the version that was named
│   └── IdempotencyReuse  the same idempotency key came with another request
├── QuotaReached          as much is kept for a user as may be; something has to go first
├── Unsupported           this backend does not claim that ability
├── Unavailable           a part we depend on cannot serve now           (retryable)
│   ├── StoreUnavailable  the ledger cannot be reached or opened         (retryable)
│   │   ├── StoreBusy     other writers held the ledger for too long     (retryable)
│   │   └── DiskFull      no space left for the ledger                   (retryable)
│   ├── Backlog           more work waits for a user than may            (retryable)
│   │   └── TooFast       more is asked for in a minute than may be      (retryable)
│   ├── IndexUnavailable  a vector database does not answer; the ledger is searched  (retryable)
│   │   └── IndexNotReady    it answers, but has nothing of this user yet   (retryable)
│   ├── CacheUnavailable  Redis does not answer; nothing depends on it   (retryable)
│   ├── UpstreamUnavailable  the endpoint chats are sent to does not answer  (retryable)
│   │   └── UpstreamBroken   it broke off in the middle of its answer      (retryable)
│   └── ModelUnavailable  an embedder, reranker or LLM does not answer   (retryable)
│       └── BrokenAnswer  it answered, but nothing that can be used      (retryable)
├── ToolFailed            a tool of an agent did not do it; the message is told to the model
├── StoreCorrupt          the ledger's file is damaged
├── StoreTooNew           the ledger was written by a newer Recollect
└── MissingExtra          an optional part is not installed; the message has the pip line

A library's own exceptions are translated in the one file that imports the library.
"""


class RecollectError(Exception):
    """The root of the tree: catch it to catch everything Recollect raises on purpose."""

    retryable = False


class InvalidInput(RecollectError):
    """What was given cannot be used."""


class InvalidText(InvalidInput):
    """The text is empty, too long, or holds characters no store can keep."""


class InvalidFilter(InvalidInput):
    """The filter names an unknown field or operator, or compares with the wrong kind of value."""


class InvalidSettings(InvalidInput):
    """A setting, a settings file or a preset is wrong."""


class MissingUser(InvalidInput):
    """Whoever asks may speak for many users, and does not say for whom."""


class Unauthenticated(RecollectError):
    """Nobody we know is asking: there is no key, or none that holds."""


class NotAllowed(RecollectError):
    """We know who is asking, and they may not do that."""


class NotFound(RecollectError):
    """There is no such thing for this user. Ids of other users answer exactly alike."""


class Conflict(RecollectError):
    """Someone else changed it first, or the change would break a promise of the ledger."""


class StaleVersion(Conflict):
    """It is no longer at the version that whoever changes it had seen."""


class IdempotencyReuse(Conflict):
    """The same idempotency key came with a different request."""


class QuotaReached(RecollectError):
    """As much is kept for a user as may be; nothing was kept, and trying again does not help by itself."""


class Unsupported(RecollectError):
    """This backend does not claim that ability."""


class Unavailable(RecollectError):
    """A part we depend on cannot serve now; trying again later can help."""

    retryable = True


class Backlog(Unavailable):
    """More work waits for a user than may; nothing was kept."""


class TooFast(Backlog):
    """More is asked for in a minute than may be; nothing was kept. `retry_after_s` says how long to wait."""

    def __init__(self, message: str, *, retry_after_s: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class IndexUnavailable(Unavailable):
    """A vector database does not answer. Searches do without it; who looks after it hears of this."""


class IndexNotReady(IndexUnavailable):
    """A vector database answers, but has not taken in this user yet; nobody else has to do without it."""


class CacheUnavailable(Unavailable):
    """Redis does not answer. Nothing depends on it, so nobody outside hears of this."""


class StoreUnavailable(Unavailable):
    """The ledger cannot be reached or opened."""


class StoreBusy(StoreUnavailable):
    """Other writers held the ledger for longer than we are willing to wait."""


class DiskFull(StoreUnavailable):
    """There is no space left for the ledger."""


class UpstreamUnavailable(Unavailable):
    """The endpoint that chats are sent to gave no answer."""


class UpstreamBroken(UpstreamUnavailable):
    """The endpoint that chats are sent to broke off in the middle of its answer."""


class ModelUnavailable(Unavailable):
    """An embedder, reranker or LLM did not answer in time, or answered nonsense."""


class BrokenAnswer(ModelUnavailable):
    """A model answered, but nothing that can be used; what it cost all the same is told, where it is known.

    `cut_off` says that it ran out of tokens, so that more of them could help.
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
    """A tool of an agent did not do what it was asked; the message is for the model that asked."""


class StoreCorrupt(RecollectError):
    """The ledger's file is damaged."""


class StoreTooNew(RecollectError):
    """The ledger was written by a newer version of Recollect."""


class MissingExtra(RecollectError):
    """An optional part is not installed."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} needs an optional part: pip install 'recollect[{extra}]'")
