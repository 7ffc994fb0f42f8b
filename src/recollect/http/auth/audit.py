"""Record in the audit log whose memories the page's user looks at."""

from __future__ import annotations

from starlette.types import Scope

from recollect.http.auth.caller import Caller
from recollect.service.handle import ServiceHandle


async def record_access(scope: Scope, caller: Caller, user: str) -> None:
    """Record the request, if the caller logged in with a key for several users."""
    if not caller.is_audited:
        return
    handle: ServiceHandle = scope["app"].state.service_handle
    path = getattr(scope.get("route"), "path", scope["path"])
    await handle.get().audit.record(caller.name, user, f"{scope['method']} {path}")
