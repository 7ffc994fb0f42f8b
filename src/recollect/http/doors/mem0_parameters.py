"""The names in the addresses of mem0's routes."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Path, Query

from recollect.http.doors.given import Name, Named
from recollect.http.doors.mem0_given import AgentId, AppId, RunId
from recollect.http.doors.mem0_shapes import MEMORY_ID

_UserName = Annotated[Name | None, Query(description="The user; one of the four is named.", examples=["alex"])]
_AgentName = Annotated[AgentId | None, Query(description="The agent.", examples=["cook"])]
_AppName = Annotated[AppId | None, Query(description="The app.", examples=["kitchen"])]
_RunName = Annotated[RunId | None, Query(description="The run, which is a session.", examples=["monday"])]
MemoryId = Annotated[str, Path(description="The id of a memory, as these routes tell it.", examples=[MEMORY_ID])]
EntityName = Annotated[Named, Path(description="What it is called; not `*`.", examples=["alex"])]


async def _whose(
    user_id: _UserName = None, agent_id: _AgentName = None, app_id: _AppName = None, run_id: _RunName = None
) -> dict[str, str | None]:
    return {"user_id": user_id, "agent_id": agent_id, "app_id": app_id, "run_id": run_id}


# The names in the query, by their fields.
Whose = Annotated[dict[str, str | None], Depends(_whose)]
