"""The names in the addresses of mem0's routes."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Query
from pydantic import Field

from recollect.http.doors.given import Name, Named
from recollect.http.doors.mem0_filter_schema import MOST_CHARS
from recollect.http.doors.mem0_shapes import MEMORY_ID

_Agent = Annotated[Name, Field(max_length=MOST_CHARS["agent_id"])]
_App = Annotated[Name, Field(max_length=MOST_CHARS["app_id"])]
_Run = Annotated[Name, Field(max_length=MOST_CHARS["run_id"])]
UserName = Annotated[Name | None, Query(description="The user; one of the four is named.", examples=["alex"])]
AgentName = Annotated[_Agent | None, Query(description="The agent.", examples=["cook"])]
AppName = Annotated[_App | None, Query(description="The app.", examples=["kitchen"])]
RunName = Annotated[_Run | None, Query(description="The run, which is a session.", examples=["monday"])]
MemoryId = Annotated[str, Path(description="The id of a memory, as these routes tell it.", examples=[MEMORY_ID])]
EntityName = Annotated[
    Named, Path(max_length=min(MOST_CHARS.values()), description="What it is called; not `*`.", examples=["alex"])
]
