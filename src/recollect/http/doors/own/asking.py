"""Whose memories a request is about, and who acts: from headers, or from parameters of the address.

What the caller may not name or do is refused here, so that no route has to think of it.
"""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import Depends, Header, Path, Query, Request

from recollect.errors import MissingUser, NotAllowed
from recollect.http.auth.caller import CallerDep
from recollect.http.doors.own.routing import ServiceDep
from recollect.http.header_text import DecodedHeader
from recollect.model.asked import parse_author
from recollect.model.change import Author
from recollect.model.scope import Scope

_DEFAULT_AUTHOR = "http"
# As a header carries it, and as a scope takes it.
_NAME_CONSTRAINTS = {"max_length": 300, "pattern": r"^[^\x00-\x1f\x7f-\x9f\u2028\u2029]*$"}


async def get_named_user(
    caller: CallerDep,
    x_memory_user: Annotated[
        str | None,
        Header(**_NAME_CONSTRAINTS, description="The user whose memories these are.", examples=["alex"]),
        DecodedHeader,
    ] = None,
    user_id: Annotated[
        str | None,
        Query(
            **_NAME_CONSTRAINTS,
            description="The same as X-Memory-User, where no header can be set.",
            examples=["alex"],
        ),
    ] = None,
) -> str:
    """The user: 401 where none is named, 403 for another than the caller's, or if the header names a second one."""
    if x_memory_user and user_id and x_memory_user != user_id:
        raise NotAllowed("X-Memory-User and user_id name two users; a request is about one")
    user = caller.resolve_user(x_memory_user or user_id) or ""
    if not user.strip():
        raise MissingUser("name the user whose memories these are: X-Memory-User, or user_id in the address")
    return Scope(user).user


async def get_whole_user(caller: CallerDep, user: Annotated[str, Depends(get_named_user)]) -> str:
    """The user, all of whose memories this is about: not for those who may see one project only."""
    if caller.project is not None:
        raise NotAllowed("this concerns all projects of a user, and whoever asks here speaks for one project")
    return user


async def get_memory_scope(
    request: Request,
    memory_id: Annotated[str, Path(description="The id of a memory.")],
    caller: CallerDep,
    user: Annotated[str, Depends(get_named_user)],
    service: ServiceDep,
) -> Scope:
    """Where the memory in the path is looked for; one of another project is as unknown as one that is not there."""
    if caller.project is not None:
        record = await service.get(Scope(user), memory_id)
        if request.method in ("GET", "HEAD"):
            caller.ensure_visible(record)
        else:
            caller.ensure_editable(record)
    return Scope(user)


async def get_project(
    x_memory_project: Annotated[
        str | None,
        Header(**_NAME_CONSTRAINTS, description="One of the user's projects.", examples=["hawaii"]),
        DecodedHeader,
    ] = None,
    project_id: Annotated[
        str | None,
        Query(
            **_NAME_CONSTRAINTS,
            description="The same as X-Memory-Project, and stronger than it.",
            examples=["hawaii"],
        ),
    ] = None,
) -> str:
    """The project, or nothing."""
    return project_id or x_memory_project or ""


async def get_session_name(
    x_memory_session: Annotated[
        str | None,
        Header(**_NAME_CONSTRAINTS, description="A session of the project or user.", examples=["monday"]),
        DecodedHeader,
    ] = None,
    session_id: Annotated[
        str | None,
        Query(
            **_NAME_CONSTRAINTS,
            description="The same as X-Memory-Session, and stronger than it.",
            examples=["monday"],
        ),
    ] = None,
) -> str:
    """The session, or nothing."""
    return session_id or x_memory_session or ""


async def get_scope(
    caller: CallerDep,
    user: Annotated[str, Depends(get_named_user)],
    project: Annotated[str, Depends(get_project)],
    session: Annotated[str, Depends(get_session_name)],
) -> Scope:
    """The user, and the project and session where they are named."""
    return caller.scope(user, project, session)


async def get_author(
    caller: CallerDep,
    x_memory_by: Annotated[
        str,
        Header(
            **_NAME_CONSTRAINTS, min_length=1, description="Who does this, as history tells it.", examples=["dana"]
        ),
        DecodedHeader,
    ] = _DEFAULT_AUTHOR,
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
) -> Author:
    """Who acts, and why; a key says for itself whose it is, and speaks for a program."""
    if x_memory_actor == "person" and caller.kind == "key" and not caller.admin:
        raise NotAllowed("this key speaks for a program: people approve with an admin key, a token or at the server")
    who = x_memory_by
    if caller.kind != "local":
        who = caller.name if who == _DEFAULT_AUTHOR else f"{caller.name} {who}"
    return parse_author(who, why if why.strip() else "", actor=x_memory_actor)


async def require_admin(caller: CallerDep) -> None:
    """Lets through who may look after everyone's memories."""
    caller.check_admin()


UserDep = Annotated[str, Depends(get_whole_user)]
MemoryScopeDep = Annotated[Scope, Depends(get_memory_scope)]
ProjectDep = Annotated[str, Depends(get_project)]
ScopeDep = Annotated[Scope, Depends(get_scope)]
AuthorDep = Annotated[Author, Depends(get_author)]
RequireAdmin = Depends(require_admin)
