"""What a caller needs which right for."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from fastapi import Depends, Request

from recollect.http.auth.caller import Asking


def rights(*, reading: Collection[str] = (), adding: Collection[str] = ()) -> Any:
    """For the routes of a door, by their names: those that only read though they are no GET, and those that only add.

    All others that change something tell what was there as well, so they take both rights.
    """

    async def check(request: Request, caller: Asking) -> None:
        name = request.scope["route"].name
        if name not in adding:
            caller.check_reads()
        if request.method not in ("GET", "HEAD") and name not in reading:
            caller.check_writes()

    return Depends(check)
