"""The graph of a user's memories: which names and keys they mention, where they were said, what replaced them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import quote

from recollect.errors import InvalidInput
from recollect.frozen_dataclass import frozen_dataclass
from recollect.model.memory import MemoryRecord, Status
from recollect.model.plain import PlainValue
from recollect.model.scope import Scope
from recollect.model.text import validate_id

MAX_NODES = 200
DEFAULT_NODES = 100
MAX_DEPTH = 2
_LABEL_CHARS = 200


class NodeKind(StrEnum):
    """The kind of a node."""

    MEMORY = "memory"
    NAME = "name"
    KEY = "key"
    SESSION = "session"


class EdgeKind(StrEnum):
    """The kind of an edge: from a memory to a name, a key, its session, or the memory that superseded it."""

    MENTIONS = "mentions"
    SAME_KEY = "same_key"
    SAID_IN = "said_in"
    SUPERSEDED_BY = "superseded_by"


@frozen_dataclass(kw_only=True)
class GraphRequest:
    """The part of the graph to return: at most `limit` nodes within `depth` edges of a name, key or memory id.

    `superseded` includes the earlier versions of memories.
    """

    around: str
    depth: int = 1
    limit: int = DEFAULT_NODES
    superseded: bool = False

    def __post_init__(self) -> None:
        if not validate_id(self.around, name="around").strip():
            raise InvalidInput("`around` is empty; give a name, a key or the id of a memory")
        for name, value, maximum in (("depth", self.depth, MAX_DEPTH), ("limit", self.limit, MAX_NODES)):
            if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= maximum:
                raise InvalidInput(f"`{name}` must be a whole number from 1 to {maximum}, got {value!r}")


@frozen_dataclass(kw_only=True)
class GraphNode(PlainValue):
    """A node; `distance` is the number of edges from the start. Memories have an id and a status, sessions an id."""

    id: str
    kind: NodeKind
    label: str
    distance: int
    memory_id: str | None = None
    status: Status | None = None
    session_id: str | None = None
    project_id: str | None = None


@dataclass(frozen=True, slots=True, order=True)
class GraphEdge(PlainValue):
    """An edge between two nodes, by their ids."""

    source: str
    kind: EdgeKind
    target: str


@frozen_dataclass
class Graph(PlainValue):
    """Nodes, nearest first, and all edges between them; `truncated` says that there are more nodes than the limit."""

    nodes: tuple[GraphNode, ...] = ()
    edges: tuple[GraphEdge, ...] = ()
    truncated: bool = False


def name_node(name: str, label: str) -> GraphNode:
    """Return the node of a name, in the form in which names are compared."""
    return GraphNode(id=f"name:{name}", kind=NodeKind.NAME, label=label, distance=0)


def key_node(key: str) -> GraphNode:
    """Return the node of the key of keyed facts."""
    return GraphNode(id=f"key:{key}", kind=NodeKind.KEY, label=key, distance=0)


def memory_node_id(id: str) -> str:
    """Return the id of the node of a memory."""
    return f"memory:{id}"


def memory_node(record: MemoryRecord) -> GraphNode:
    """Return the node of a memory; a long text is cut."""
    text = record.content
    return GraphNode(
        id=memory_node_id(record.id),
        kind=NodeKind.MEMORY,
        label=text if len(text) <= _LABEL_CHARS else f"{text[: _LABEL_CHARS - 1]}…",
        distance=0,
        memory_id=record.id,
        status=record.status,
    )


def session_node(scope: Scope) -> GraphNode:
    """Return the node of a session."""
    return GraphNode(
        # Quoted, because ids may contain any character.
        id=f"session:{quote(scope.project, safe='')}/{quote(scope.session, safe='')}",
        kind=NodeKind.SESSION,
        label=scope.session,
        distance=0,
        session_id=scope.session,
        project_id=scope.project or None,
    )
