"""Make methods of the ledger from functions that take a transaction."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from datetime import datetime
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from recollect.ledger.sql.tx import ALL_TENANTS, Tenant, Tx, tenant_or_all
from recollect.model.job import Job
from recollect.model.scope import Scope

P = ParamSpec("P")
T = TypeVar("T")
Body = Callable[Concatenate[Tx, P], Coroutine[Any, Any, T]]
Method = Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]
# Rows that one transaction prunes, so that no writer waits for long.
PRUNE_BATCH = 1000


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


def write_method(body: Body[P, T], *, tenant: Tenant | None = None) -> Method[P, T]:
    """Return a method that runs `body` in a transaction and returns once it is on disk; `tenant` as for reads."""
    tenant_of = _tenant_getter(body, tenant)

    @wraps(body)
    async def method(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        result: T = await self.engine.write(lambda tx: body(tx, *args, **kwargs), tenant=tenant_of(args, kwargs))
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
