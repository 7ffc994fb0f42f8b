"""Whose memories a request is about, and who acts: from headers, or from parameters of the address.

It takes a caller's word for who they are: what decides whether that may be believed stands before this.
"""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import Depends, Header, Query, Request
from starlette.exceptions import HTTPException

from recollect.model.asked import read_by, read_scope
from recollect.model.change import By
from recollect.model.scope import Scope

# As a header carries it, and as a scope takes it.
_NAMED = {"max_length": 300, "pattern": r"^[^\x00-\x1f\x7f-\x9f\u2028\u2029]*$"}


async def user_of(
    x_memory_user: Annotated[
        str | None, Header(**_NAMED, description="The user whose memories these are.", examples=["alex"])
    ] = None,
    user_id: Annotated[
        str | None,
        Query(**_NAMED, description="The same as X-Memory-User, where no header can be set.", examples=["alex"]),
    ] = None,
) -> str:
    """The user: 401 where none is named, 403 where the header names one and the address another."""
    if x_memory_user and user_id and x_memory_user != user_id:
        raise HTTPException(403, "X-Memory-User and user_id name two users; a request is about one")
    user = x_memory_user or user_id or ""
    if not user.strip():
        raise HTTPException(401, "name the user whose memories these are: X-Memory-User, or user_id in the address")
    return Scope(user).user


async def project_of(
    x_memory_project: Annotated[
        str | None, Header(**_NAMED, description="One of the user's projects.", examples=["hawaii"])
    ] = None,
    project_id: Annotated[
        str | None,
        Query(**_NAMED, description="The same as X-Memory-Project, and stronger than it.", examples=["hawaii"]),
    ] = None,
) -> str:
    """The project, or nothing."""
    return project_id or x_memory_project or ""


async def session_of(
    x_memory_session: Annotated[
        str | None, Header(**_NAMED, description="A session of the project or user.", examples=["monday"])
    ] = None,
    session_id: Annotated[
        str | None,
        Query(**_NAMED, description="The same as X-Memory-Session, and stronger than it.", examples=["monday"]),
    ] = None,
) -> str:
    """The session, or nothing."""
    return session_id or x_memory_session or ""


async def scope_of(
    user: Annotated[str, Depends(user_of)],
    project: Annotated[str, Depends(project_of)],
    session: Annotated[str, Depends(session_of)],
) -> Scope:
    """The user, and the project and session where they are named."""
    return read_scope(user, project, session)


async def actor_of(
    x_memory_by: Annotated[
        str,
        Header(**_NAMED, min_length=1, description="Who does this, as history tells it.", examples=["dana"]),
    ] = "http",
    x_memory_actor: Annotated[
        Literal["person", "agent"],
        Header(description="Whether a person does this or a program by itself. Only a person approves."),
    ] = "agent",
    why: Annotated[
        str,
        Query(
            max_length=2000,
            pattern=r"^[^\x00]*$",
            description="Why this is done, as history tells it.",
            examples=["asked by mail"],
        ),
    ] = "",
) -> By:
    """Who acts, and why."""
    return read_by(x_memory_by, why if why.strip() else "", actor=x_memory_actor)


async def admin(request: Request) -> None:
    """Lets through who may look after everyone's memories: for now, whoever reaches this server."""


User = Annotated[str, Depends(user_of)]
Project = Annotated[str, Depends(project_of)]
Place = Annotated[Scope, Depends(scope_of)]
Acting = Annotated[By, Depends(actor_of)]
Admin = Depends(admin)
