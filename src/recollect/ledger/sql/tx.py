"""The contracts of a SQL database: a transaction, its dialect, and an engine that runs transactions.

The functions of this package are coroutines over a transaction. PostgreSQL awaits in them; SQLite answers at once, so
a writer thread can run them to the end with `run_now`.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterable, Awaitable, Callable, Coroutine, Mapping, Sequence
from datetime import datetime
from enum import Enum
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, Protocol, TypeAlias, TypeVar

from recollect.frozen_dataclass import frozen_dataclass
from recollect.model.job import Job
from recollect.model.query import Op, Where
from recollect.model.scope import Scope

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


T = TypeVar("T")
R = TypeVar("R")
Row: TypeAlias = Sequence[Any]
# The SQL operators; NE is written as the negation of EQ.
OPERATORS = {Op.EQ: "=", Op.NE: "=", Op.GT: ">", Op.GTE: ">=", Op.LT: "<", Op.LTE: "<="}
Postings: TypeAlias = "tuple[NDArray[np.int64], NDArray[np.int64]]"


class TenantRows(Enum):
    """The rows that a transaction touches, where that is not one user's."""

    ALL = "everyone's"
    NONE = "nobody's"


# For reading or maintaining all users at once, and for tables without users.
ALL_TENANTS: Final = TenantRows.ALL
NO_TENANT: Final = TenantRows.NONE
Tenant: TypeAlias = str | TenantRows


def tenant_or_all(user: str | None) -> Tenant:
    """Return the user or, without one, all tenants."""
    return ALL_TENANTS if user is None else user


class Dialect(Protocol):
    """Where the databases differ."""

    name: str
    # The placeholders in {braces} of migrations, and fragments of queries.
    fragments: Mapping[str, str]

    @property
    def terms(self) -> FullTextIndex: ...

    def among(self, column: str, param: str) -> str:
        """Return SQL that is true where the column is one of the texts of a list parameter."""

    def among_numbers(self, column: str, param: str) -> str:
        """Return SQL that is true where the column is one of the integers of a list parameter."""

    def among_tuples(self, columns: Sequence[str], param: str) -> str:
        """Return SQL that is true where the columns, the user's first, are one of the tuples of a list parameter.

        Where a transaction is of one user, it may be true for other combinations of their values.
        """

    def in_body(self, name: str) -> str:
        """Return SQL for a text field of the JSON body."""

    def has_member(self, name: str, param: str, *, any_of: bool) -> str:
        """Return SQL that is true where a list in the JSON body contains the parameter, or any member of it."""

    def metadata_test(self, comparison: Where, param: str, inside: str) -> str:
        """Return SQL for a comparison inside metadata, whose name is a parameter too."""

    def contains(self, column: str, param: str) -> str:
        """Return SQL that is true where the text contains the parameter exactly."""

    async def block_writers(self, tx: Tx) -> None:
        """Keep others from writing until the transaction ends; readers see what was before."""


class Tx(Protocol):
    """One transaction; parameters are named, as in `:user`."""

    @property
    def dialect(self) -> Dialect: ...

    async def rows(self, sql: str, params: Mapping[str, Any]) -> Sequence[Row]:
        """Execute a query and return its rows."""

    async def run(self, sql: str, params: Mapping[str, Any]) -> None:
        """Execute a statement."""

    async def many(self, sql: str, params: Sequence[Mapping[str, Any]]) -> None:
        """Execute a statement for each set of parameters."""

    async def restrict_to(self, tenant: Tenant) -> None:
        """Restrict what follows to the rows of a tenant, where the database enforces it."""


class FullTextIndex(Protocol):
    """The full text of one database: rows by term, and how often a term occurs in each."""

    async def put(self, tx: Tx, rows: Mapping[int, str]) -> None:
        """Index new rows under their words."""

    async def drop(self, tx: Tx, rows: Mapping[int, str]) -> None:
        """Remove rows without a trace, given the words they were indexed under."""

    async def drop_many(self, tx: Tx, pages: AsyncIterable[Mapping[int, str]]) -> None:
        """Remove many rows, page by page."""

    async def postings(self, tx: Tx, words: Sequence[str]) -> list[Postings]:
        """Return, for each word, the rows it occurs in, ascending, and how often."""

    async def count(self, tx: Tx) -> int:
        """Return how many rows are indexed."""

    async def clear(self, tx: Tx) -> None:
        """Remove all rows."""


# The database's log, as a name among tables that may still hold bytes of deleted rows.
LOG = "log"


@frozen_dataclass
class ScrubResult:
    """Whether the bytes of deleted rows are gone; the note says where they may still be.

    A final result does not improve by retrying. `remaining` names the tables, or LOG, that may hold some; if it is
    empty and the result is not complete, all may.
    """

    is_complete: bool
    note: str = ""
    is_final: bool = False
    remaining: tuple[str, ...] = ()


class SqlEngine(Protocol):
    """A database that runs functions over a transaction."""

    @property
    def dialect(self) -> Dialect: ...

    @property
    def is_local(self) -> bool:
        """Whether a few statements take microseconds, because there is no network."""

    async def read(self, body: Callable[[Tx], Coroutine[Any, Any, T]], *, tenant: Tenant, quick: bool = False) -> T:
        """Run the body on one consistent view of the tenant's rows; `quick` says that it reads a handful of them."""

    async def write(self, body: Callable[[Tx], Coroutine[Any, Any, T]], *, tenant: Tenant) -> T:
        """Run the body in a transaction on the tenant's rows; return once it is on disk."""

    async def write_each(
        self, body: Callable[[Tx, Sequence[R]], Coroutine[Any, Any, Sequence[T]]], request: R, *, tenant: Tenant
    ) -> T:
        """Run the body on a request and return its result, as `write` does.

        A database with one writer passes all requests that wait for the same body at once, in order. If they fail
        together, each is run alone.
        """

    async def size(self) -> int:
        """Return the bytes on disk."""

    async def scrub(self, tables: Sequence[str]) -> ScrubResult:
        """Remove the bytes of rows deleted from tables, as far as possible; can block writers."""

    async def sweep(self, tables: Sequence[str]) -> ScrubResult:
        """Remove such bytes as far as it blocks nobody: nothing is rewritten."""

    async def check(self) -> list[str]:
        """Return what is damaged, a sentence each."""

    async def security_warnings(self) -> list[str]:
        """Return what makes the store less safe than it could be, a sentence each."""

    async def copy_to(self, path: Path, on_progress: Callable[[int, int], None]) -> None:
        """Copy a consistent view of everything into a new SQLite file without blocking writers."""

    async def copy_from(self, path: Path, on_progress: Callable[[int, int], None]) -> None:
        """Restore such a file into an empty database."""

    async def close(self) -> None: ...


def run_now(steps: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never suspends."""
    try:
        steps.send(None)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    steps.close()
    raise RuntimeError("a step that must answer at once tried to wait")


async def fetch_one(tx: Tx, sql: str, params: Mapping[str, Any]) -> Row | None:
    """Return the first row, if any."""
    rows = await tx.rows(sql, params)
    return rows[0] if rows else None


P = ParamSpec("P")
Body = Callable[Concatenate[Tx, P], Coroutine[Any, Any, T]]
Method = Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]
# Rows that one transaction prunes, so that no writer waits for long.
PRUNE_BATCH = 1000
_NOTHING: Mapping[str, Any] = {}


def read_method(
    body: Body[P, T], *, tenant: Tenant | None = None, quick: bool | Callable[..., bool] = False
) -> Method[P, T]:
    """Return a method that runs `body` on a consistent view of the data.

    It sees the rows of `tenant` or, by default, of the user named by its argument `user`, `scope` or `job`; None
    means all users. `quick` says that it reads a handful of rows, or is called with the arguments to tell.
    """
    tenant_of = _tenant_getter(body, tenant)

    @wraps(body)
    async def method(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        result: T = await self.engine.read(
            lambda tx: body(tx, *args, **kwargs),
            tenant=tenant_of(args, kwargs),
            quick=quick(*args, **kwargs) if callable(quick) else quick,
        )
        return result

    return method


def write_method(
    body: Body[P, T],
    *,
    tenant: Tenant | None = None,
    clean: Mapping[str, Callable[[Any, Any], Awaitable[Any]]] = _NOTHING,
) -> Method[P, T]:
    """Return a method that runs `body` in a transaction and returns once it is on disk; `tenant` as for reads.

    `clean` has the function that redacts an argument, by the argument's name.
    """
    tenant_of = _tenant_getter(body, tenant)
    names = list(inspect.signature(body).parameters)[1:]

    async def redact(ledger: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        async def redact_one(name: str, value: Any) -> Any:
            return await clean[name](ledger.clean, value) if name in clean and value is not None else value

        positional = [await redact_one(name, value) for name, value in zip(names, args, strict=False)]
        return positional, {name: await redact_one(name, value) for name, value in kwargs.items()}

    @wraps(body)
    async def method(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        call: Any = await redact(self, args, kwargs) if clean else (args, kwargs)
        result: T = await self.engine.write(lambda tx: body(tx, *call[0], **call[1]), tenant=tenant_of(args, kwargs))
        return result

    return method


def prune_method(*bodies: Body[[datetime], int]) -> Method[[datetime], int]:
    """Return a method that removes what is older than a time, a batch per transaction, and returns how many rows."""

    async def method(self: Any, before: datetime) -> int:
        pruned = 0
        for body in bodies:
            batch = PRUNE_BATCH
            while batch >= PRUNE_BATCH:
                batch = await self.engine.write(lambda tx, body=body: body(tx, before), tenant=ALL_TENANTS)
                pruned += batch
        return pruned

    return method


def _tenant_getter(body: Callable[..., Any], tenant: Tenant | None) -> Callable[[Any, Any], Tenant]:
    if tenant is not None:
        return lambda args, kwargs: tenant
    names = list(inspect.signature(body).parameters)[1:]
    at, name = next((at, name) for at, name in enumerate(names) if name in ("user", "scope", "job"))

    def tenant_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tenant:
        owner = args[at] if at < len(args) else kwargs.get(name)
        if isinstance(owner, Job):
            owner = owner.scope
        return owner.user if isinstance(owner, Scope) else tenant_or_all(owner)

    return tenant_of
