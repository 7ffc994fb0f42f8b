"""The names in the addresses of mem0's routes."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Path, Query

from recollect.http.doors.given import Name, RequiredName
from recollect.http.doors.mem0_given import AgentId, AppId, RunId
from recollect.http.doors.mem0_shapes import MEMORY_ID

_UserQuery = Annotated[Name | None, Query(description="The user; one of the four is named.", examples=["alex"])]
_AgentQuery = Annotated[AgentId | None, Query(description="The agent.", examples=["cook"])]
_AppQuery = Annotated[AppId | None, Query(description="The app.", examples=["kitchen"])]
_RunQuery = Annotated[RunId | None, Query(description="The run, which is a session.", examples=["monday"])]
MemoryId = Annotated[str, Path(description="The id of a memory, as these routes tell it.", examples=[MEMORY_ID])]
EntityName = Annotated[RequiredName, Path(description="What it is called; not `*`.", examples=["alex"])]


async def _entity_query(
    user_id: _UserQuery = None, agent_id: _AgentQuery = None, app_id: _AppQuery = None, run_id: _RunQuery = None
) -> dict[str, str | None]:
    return {"user_id": user_id, "agent_id": agent_id, "app_id": app_id, "run_id": run_id}


# The names in the query, by their fields.
EntityQuery = Annotated[dict[str, str | None], Depends(_entity_query)]
