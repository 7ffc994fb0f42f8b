"""What a caller needs which right for."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from fastapi import Depends, Request

from recollect.http.auth.caller import CallerDep


def require_permissions(*, read_only: Collection[str] = (), write_only: Collection[str] = ()) -> Any:
    """For the routes of a door, by their names: those that only read though they are no GET, and those that only add.

    All others that change something tell what was there as well, so they take both rights.
    """

    async def check_permissions(request: Request, caller: CallerDep) -> None:
        name = request.scope["route"].name
        if name not in write_only:
            caller.check_can_read()
        if request.method not in ("GET", "HEAD") and name not in read_only:
            caller.check_can_write()

    return Depends(check_permissions)
