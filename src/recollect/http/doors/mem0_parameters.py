"""The names in the addresses of mem0's routes."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Query

from recollect.http.doors.given import Name, Named
from recollect.http.doors.mem0_given import AgentId, AppId, RunId
from recollect.http.doors.mem0_shapes import MEMORY_ID

UserName = Annotated[Name | None, Query(description="The user; one of the four is named.", examples=["alex"])]
AgentName = Annotated[AgentId | None, Query(description="The agent.", examples=["cook"])]
AppName = Annotated[AppId | None, Query(description="The app.", examples=["kitchen"])]
RunName = Annotated[RunId | None, Query(description="The run, which is a session.", examples=["monday"])]
MemoryId = Annotated[str, Path(description="The id of a memory, as these routes tell it.", examples=[MEMORY_ID])]
EntityName = Annotated[Named, Path(description="What it is called; not `*`.", examples=["alex"])]
