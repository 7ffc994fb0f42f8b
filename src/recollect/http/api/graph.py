"""The route for the graph of memories, names, keys and sessions."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query
from fastapi.responses import JSONResponse
from pydantic import Field

from recollect.http.api.schemas import json_response
from recollect.http.params import RequiredName, ResponseModel
from recollect.http.routing import ScopeDep, ServiceDep, create_api_router
from recollect.model.graph import DEFAULT_NODES, MAX_DEPTH, MAX_NODES, EdgeKind, GraphRequest, NodeKind
from recollect.model.memory import Status

graph_router = create_api_router("graph")


class GraphNodeResponse(ResponseModel):
    """A memory, a name, a key or a session."""

    id: str = Field(description="Unique within the graph.")
    kind: NodeKind
    label: str = Field(description="The name as written, the key, the session's id, or the beginning of the memory.")
    distance: int = Field(ge=0, le=MAX_DEPTH, description="The number of edges from `around`.")
    memory_id: str | None = Field(description="Of a memory.")
    status: Status | None = Field(description="Of a memory.")
    session_id: str | None = Field(description="Of a session.")
    project_id: str | None = Field(description="Of a session, if it is in a project.")


class GraphEdgeResponse(ResponseModel):
    """An edge from a memory to another node."""

    source: str
    target: str
    kind: EdgeKind


class GraphResponse(ResponseModel):
    """Nodes, nearest first, and all edges between them."""

    nodes: list[GraphNodeResponse]
    edges: list[GraphEdgeResponse]
    truncated: bool = Field(description="Whether there are more nodes than the limit.")


@graph_router.get("/graph", response_model=GraphResponse)
async def get_graph(
    scope: ScopeDep,
    service: ServiceDep,
    around: Annotated[RequiredName, Query(description="A name, a key, or the id of a memory.", examples=["Berlin"])],
    depth: Annotated[int, Query(ge=1, le=MAX_DEPTH, description="How many edges to follow.")] = 1,
    limit: Annotated[int, Query(ge=1, le=MAX_NODES, description="The maximum number of nodes.")] = DEFAULT_NODES,
    superseded: Annotated[bool, Query(description="Whether to include superseded memories.")] = False,
) -> JSONResponse:
    """Return the memories that mention a name or have a key, and what else they mention.

    Only memories that a search in this scope can find are included; turns are not. Without any, the graph is empty.
    """
    request = GraphRequest(around=around, depth=depth, limit=limit, superseded=superseded)
    return json_response(await service.graph(scope, request))
