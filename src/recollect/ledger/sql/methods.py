"""Make methods of a ledger from functions that take a transaction."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, TypeVar

from recollect.ledger.sql.tx import Tenant, Tx, tenant_or_all
from recollect.model.job import Job
from recollect.model.scope import Scope

P = ParamSpec("P")
T = TypeVar("T")
Body = Callable[Concatenate[Tx, P], Coroutine[Any, Any, T]]
Method = Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]


def read_method(body: Body[P, T], *, tenant: Tenant | None = None, quick: bool = False) -> Method[P, T]:
    """Return a method that runs `body` on a consistent view of the data.

    It sees the rows of `tenant` or, by default, of the user that its first argument names: a user id, a `Scope` or
    a `Job`, and None for all users. `quick` says that it reads a handful of rows.
    """
    tenant_of = _tenant_getter(body, tenant)

    async def method(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        result: T = await self.engine.read(
            lambda tx: body(tx, *args, **kwargs), tenant=tenant_of(args, kwargs), quick=quick
        )
        return result

    return method


def write_method(body: Body[P, T], *, tenant: Tenant | None = None) -> Method[P, T]:
    """Return a method that runs `body` in a transaction and returns once it is on disk; `tenant` as for reads."""
    tenant_of = _tenant_getter(body, tenant)

    async def method(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        result: T = await self.engine.write(lambda tx: body(tx, *args, **kwargs), tenant=tenant_of(args, kwargs))
        return result

    return method


def _tenant_getter(body: Callable[..., Any], tenant: Tenant | None) -> Callable[[Any, Any], Tenant]:
    if tenant is not None:
        return lambda args, kwargs: tenant
    name = list(inspect.signature(body).parameters)[1]

    def tenant_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tenant:
        owner = args[0] if args else kwargs.get(name)
        if isinstance(owner, Job):
            owner = owner.scope
        return owner.user if isinstance(owner, Scope) else tenant_or_all(owner)

    return tenant_of
