"""What the body of SQL asks of a database: a transaction to speak in, and a few words of its dialect.

The body is written once, as coroutines. PostgreSQL really waits in them; SQLite answers at once, so a
writer thread can run them to the end with `run_now`.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, Awaitable, Callable, Coroutine, Mapping, Sequence
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
# How a comparison is written; what is not equal is the negation of what is.
OPERATORS = {Op.EQ: "=", Op.NE: "=", Op.GT: ">", Op.GTE: ">=", Op.LT: "<", Op.LTE: "<="}
Postings: TypeAlias = "tuple[NDArray[np.int64], NDArray[np.int64]]"


class TenantRows(Enum):
    """Whose rows a transaction touches, where that is not one user's."""

    ALL = "everyone's"
    NONE = "nobody's"


# Where all users are looked at or after together, and where only what belongs to no user is touched.
ALL_TENANTS: Final = TenantRows.ALL
NO_TENANT: Final = TenantRows.NONE
Tenant: TypeAlias = str | TenantRows


def tenant_or_all(user: str | None) -> Tenant:
    """The user's rows or, without one, everyone's."""
    return ALL_TENANTS if user is None else user


class Dialect(Protocol):
    """Where the databases differ."""

    name: str
    # The words in {braces} of a migration.
    fragments: Mapping[str, str]

    def among(self, column: str, param: str) -> str:
        """SQL that is true where the column is one of the values of a list parameter."""
        ...

    def in_body(self, name: str) -> str:
        """SQL for a text in the JSON body, by one of our own names."""
        ...

    def has_member(self, name: str, param: str, *, any_of: bool) -> str:
        """SQL that is true where a list in the JSON body holds the parameter, or any member of it."""
        ...

    def metadata_test(self, comparison: Where, param: str, inside: str) -> str:
        """SQL for a comparison inside metadata; the name inside it is a parameter too."""
        ...

    def contains(self, column: str, param: str) -> str:
        """SQL that is true where the text holds the parameter, letter by letter."""
        ...


class Tx(Protocol):
    """One transaction; parameters are named, as in `:user`."""

    @property
    def dialect(self) -> Dialect: ...

    async def rows(self, sql: str, params: Mapping[str, Any]) -> Sequence[Row]:
        """Every row of the answer."""
        ...

    async def run(self, sql: str, params: Mapping[str, Any]) -> None:
        """Do it; nothing comes back."""
        ...

    async def many(self, sql: str, params: Sequence[Mapping[str, Any]]) -> None:
        """Do it once for each set of parameters."""
        ...

    async def restrict_to(self, tenant: Tenant) -> None:
        """From here on touch the rows of these only; a database that can tell keeps us to it."""
        ...


class FullTextIndex(Protocol):
    """Full text as one database does it: rows under terms, and how often a term is in a row."""

    async def put(self, tx: Tx, rows: Mapping[int, str]) -> None:
        """Index new rows under their words."""
        ...

    async def drop(self, tx: Tx, rows: Mapping[int, str]) -> None:
        """Forget rows, without a trace; the words must be those they were put under."""
        ...

    async def drop_many(self, tx: Tx, pages: AsyncIterable[Mapping[int, str]]) -> None:
        """The same for more rows than one would drop one by one, page by page."""
        ...

    async def postings(self, tx: Tx, words: Sequence[str]) -> list[Postings]:
        """For each word the rows under it, rising, and how often it is said in each."""
        ...

    async def count(self, tx: Tx) -> int:
        """How many rows are indexed."""
        ...

    async def clear(self, tx: Tx) -> None:
        """Forget all rows."""
        ...


# The log of a database, among the tables that may still hold bytes of deleted rows.
LOG = "log"


@dataclass(frozen=True, slots=True)
class ScrubResult:
    """Whether bytes of deleted rows are gone; the note says where they may still be.

    What is final does not get better by trying again. `left` names the tables, and `LOG` for the database's own log,
    in which there may be some; with nothing named, what is not reached is all of it.
    """

    is_complete: bool
    note: str = ""
    is_final: bool = False
    remaining: tuple[str, ...] = ()


Body: TypeAlias = Callable[[Tx], Awaitable[T]]


class SqlEngine(Protocol):
    """A database that can run the body."""

    @property
    def dialect(self) -> Dialect: ...

    @property
    def terms(self) -> FullTextIndex: ...

    @property
    def is_local(self) -> bool:
        """Whether a few statements cost microseconds, because nothing lies between us and the data."""
        ...

    async def read(self, body: Callable[[Tx], Coroutine[Any, Any, T]], *, tenant: Tenant, quick: bool = False) -> T:
        """Run the body on one consistent view of their rows; `quick` says that it looks at a handful of them."""
        ...

    async def write(self, body: Callable[[Tx], Coroutine[Any, Any, T]], *, tenant: Tenant) -> T:
        """Run the body in a transaction of its own, on their rows; when this returns it is on disk."""
        ...

    async def size(self) -> int:
        """Bytes on disk."""
        ...

    async def scrub(self, tables: Sequence[str]) -> ScrubResult:
        """Leave no bytes of what was deleted from tables, as far as that is ours to do; can keep writers waiting."""
        ...

    async def sweep(self, tables: Sequence[str]) -> ScrubResult:
        """The same as far as it keeps nobody waiting: nothing is written anew."""
        ...

    async def check(self) -> list[str]:
        """What is wrong with the store, a sentence each."""
        ...

    async def security_warnings(self) -> list[str]:
        """What makes the store less safe than it could be, a sentence each."""
        ...

    async def copy_to(self, path: Path, on_progress: Callable[[int, int], None]) -> None:
        """Copy all it holds at this moment into a new SQLite file; nobody who writes waits for it."""
        ...

    async def copy_from(self, path: Path, on_progress: Callable[[int, int], None]) -> None:
        """Take in what such a file holds; only an empty database takes it."""
        ...

    async def close(self) -> None: ...


def run_now(steps: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never waits to its end."""
    try:
        steps.send(None)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    steps.close()
    raise RuntimeError("a step that must answer at once tried to wait")


async def fetch_one(tx: Tx, sql: str, params: Mapping[str, Any]) -> Row | None:
    """The first row of the answer, if any."""
    rows = await tx.rows(sql, params)
    return rows[0] if rows else None
