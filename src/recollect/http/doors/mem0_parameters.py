"""The names in the addresses of mem0's routes."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Query
from pydantic import Field

from recollect.http.doors.given import Name, Named
from recollect.http.doors.mem0_filter_schema import MOST_NAME_CHARS
from recollect.http.doors.mem0_shapes import MEMORY_ID

_Entity = Annotated[Name, Field(max_length=MOST_NAME_CHARS)]
UserName = Annotated[Name | None, Query(description="The user; one of the four is named.", examples=["alex"])]
AgentName = Annotated[_Entity | None, Query(description="The agent.", examples=["cook"])]
AppName = Annotated[_Entity | None, Query(description="The app.", examples=["kitchen"])]
RunName = Annotated[_Entity | None, Query(description="The run, which is a session.", examples=["monday"])]
MemoryId = Annotated[str, Path(description="The id of a memory, as these routes tell it.", examples=[MEMORY_ID])]
EntityName = Annotated[
    Named, Path(max_length=MOST_NAME_CHARS, description="What it is called; not `*`.", examples=["alex"])
]
