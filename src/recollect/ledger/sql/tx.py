"""The contracts of a SQL database: a transaction, its dialect, and an engine that runs transactions.

The functions of this package are coroutines over a transaction. PostgreSQL awaits in them; SQLite answers at once, so
a writer thread can run them to the end with `run_now`.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, TypeVar

from recollect.model.query import Op, Where

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


T = TypeVar("T")
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
        """Return SQL that is true where the column is one of the values of a list parameter."""
        ...

    def in_body(self, name: str) -> str:
        """Return SQL for a text field of the JSON body."""
        ...

    def has_member(self, name: str, param: str, *, any_of: bool) -> str:
        """Return SQL that is true where a list in the JSON body contains the parameter, or any member of it."""
        ...

    def metadata_test(self, comparison: Where, param: str, inside: str) -> str:
        """Return SQL for a comparison inside metadata, whose name is a parameter too."""
        ...

    def contains(self, column: str, param: str) -> str:
        """Return SQL that is true where the text contains the parameter exactly."""
        ...


class Tx(Protocol):
    """One transaction; parameters are named, as in `:user`."""

    @property
    def dialect(self) -> Dialect: ...

    async def rows(self, sql: str, params: Mapping[str, Any]) -> Sequence[Row]:
        """Execute a query and return its rows."""
        ...

    async def run(self, sql: str, params: Mapping[str, Any]) -> None:
        """Execute a statement."""
        ...

    async def many(self, sql: str, params: Sequence[Mapping[str, Any]]) -> None:
        """Execute a statement for each set of parameters."""
        ...

    async def restrict_to(self, tenant: Tenant) -> None:
        """Restrict what follows to the rows of a tenant, where the database enforces it."""
        ...


class FullTextIndex(Protocol):
    """The full text of one database: rows by term, and how often a term occurs in each."""

    async def put(self, tx: Tx, rows: Mapping[int, str]) -> None:
        """Index new rows under their words."""
        ...

    async def drop(self, tx: Tx, rows: Mapping[int, str]) -> None:
        """Remove rows without a trace, given the words they were indexed under."""
        ...

    async def drop_many(self, tx: Tx, pages: AsyncIterable[Mapping[int, str]]) -> None:
        """Remove many rows, page by page."""
        ...

    async def postings(self, tx: Tx, words: Sequence[str]) -> list[Postings]:
        """Return, for each word, the rows it occurs in, ascending, and how often."""
        ...

    async def count(self, tx: Tx) -> int:
        """Return how many rows are indexed."""
        ...

    async def clear(self, tx: Tx) -> None:
        """Remove all rows."""
        ...


# The database's log, as a name among tables that may still hold bytes of deleted rows.
LOG = "log"


@dataclass(frozen=True, slots=True)
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
        ...

    async def read(self, body: Callable[[Tx], Coroutine[Any, Any, T]], *, tenant: Tenant, quick: bool = False) -> T:
        """Run the body on one consistent view of the tenant's rows; `quick` says that it reads a handful of them."""
        ...

    async def write(self, body: Callable[[Tx], Coroutine[Any, Any, T]], *, tenant: Tenant) -> T:
        """Run the body in a transaction on the tenant's rows; return once it is on disk."""
        ...

    async def size(self) -> int:
        """Return the bytes on disk."""
        ...

    async def scrub(self, tables: Sequence[str]) -> ScrubResult:
        """Remove the bytes of rows deleted from tables, as far as possible; can block writers."""
        ...

    async def sweep(self, tables: Sequence[str]) -> ScrubResult:
        """Remove such bytes as far as it blocks nobody: nothing is rewritten."""
        ...

    async def check(self) -> list[str]:
        """Return what is damaged, a sentence each."""
        ...

    async def security_warnings(self) -> list[str]:
        """Return what makes the store less safe than it could be, a sentence each."""
        ...

    async def copy_to(self, path: Path, on_progress: Callable[[int, int], None]) -> None:
        """Copy a consistent view of everything into a new SQLite file without blocking writers."""
        ...

    async def copy_from(self, path: Path, on_progress: Callable[[int, int], None]) -> None:
        """Restore such a file into an empty database."""
        ...

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
