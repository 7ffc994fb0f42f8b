"""Walk the graph of memories around a name, a key or a memory, breadth first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from recollect.ledger.ledger import Ledger
from recollect.model.graph import (
    EdgeKind,
    Graph,
    GraphEdge,
    GraphNode,
    GraphRequest,
    NodeKind,
    key_node,
    memory_node,
    memory_node_id,
    name_node,
    session_node,
)
from recollect.model.memory import MemoryRecord
from recollect.model.scope import Scope
from recollect.text.names import Mention, MentionKind, find_mentions, fold_label


async def build_graph(scope: Scope, request: GraphRequest, *, ledger: Ledger) -> Graph:
    """Return the visible part of the user's graph around a memory or, if it is no id of one, a name or key.

    Sessions are not followed: all memories of a session would be related.
    """
    walk = _Walk(scope, request, ledger)
    frontier = await walk.start()
    for distance in range(1, request.depth + 1):
        frontier = await walk.step(frontier, distance)
    return walk.graph()


@dataclass(slots=True)
class _Walk:
    """The nodes reached so far; the memories among them, and what these mention, by node."""

    scope: Scope
    request: GraphRequest
    ledger: Ledger
    nodes: dict[str, GraphNode] = field(default_factory=dict)
    records: dict[str, MemoryRecord] = field(default_factory=dict)
    mentions: dict[str, list[Mention]] = field(default_factory=dict)
    certain: set[str] = field(default_factory=set)
    truncated: bool = False

    async def start(self) -> list[GraphNode]:
        """Return the node or nodes to begin with."""
        around = self.request.around
        if memories := await self._linked([around], limit=1):
            return self._add_memories(memories, 0)
        # A name that was asked for is one, also where it only begins a sentence.
        name = fold_label(around)
        self.certain.add(name)
        mentioned, keyed = await self._mentioning([name], [], limit=1), await self._mentioning([], [around], limit=1)
        labels = [each.label for record in mentioned for each in _mentions(record) if each.name == name]
        starts = [name_node(name, label) for label in labels[:1]] + ([key_node(around)] if keyed else [])
        return self._add(starts, 0)

    async def step(self, frontier: Sequence[GraphNode], distance: int) -> list[GraphNode]:
        """Add the neighbours of the nodes that were reached last; return the new ones."""
        # One more than there is space for tells that some are left out.
        limit = self.request.limit + 1
        memories = [node for node in frontier if node.kind is NodeKind.MEMORY]
        reached = await self._add_attached(memories, distance) if memories else []
        if memories and self.request.superseded:
            ids = [node.memory_id for node in memories if node.memory_id]
            successors = [self.records[node.id].superseded_by for node in memories]
            linked = await self._linked([id for id in successors if id], replaced_by=ids, limit=limit)
            reached += self._add_memories(linked, distance)
        names = [node.id.removeprefix("name:") for node in frontier if node.kind is NodeKind.NAME]
        keys = [node.label for node in frontier if node.kind is NodeKind.KEY]
        if names or keys:
            reached += self._add_memories(await self._mentioning(names, keys, limit=limit), distance)
        return reached

    async def _add_attached(self, memories: Sequence[GraphNode], distance: int) -> list[GraphNode]:
        """Add the names, keys and sessions of memories."""
        opening = {
            mention.name
            for node in memories
            for mention in self.mentions[node.id]
            if mention.kind is MentionKind.OPENING and mention.name not in self.certain
        }
        if opening:
            superseded = self.request.superseded
            self.certain |= await self.ledger.certain_names(self.scope, opening, superseded=superseded)
        return self._add((attached for node in memories for attached in self._attached(node)), distance)

    def _attached(self, node: GraphNode) -> Iterator[GraphNode]:
        """Yield the nodes of the names, the key and the session of a memory."""
        for name, label, kind in self.mentions[node.id]:
            if kind is MentionKind.KEY:
                yield key_node(name)
            elif kind is MentionKind.NAME or (kind is MentionKind.OPENING and name in self.certain):
                yield name_node(name, label)
        scope = self.records[node.id].scope
        # A project does not see the sessions of another.
        if scope.session and self.scope.project in ("", scope.project):
            yield session_node(scope)

    async def _mentioning(self, names: Sequence[str], keys: Sequence[str], *, limit: int) -> list[MemoryRecord]:
        superseded = self.request.superseded
        return await self.ledger.mentioning(self.scope, names, keys, superseded=superseded, limit=limit)

    async def _linked(self, ids: Sequence[str], *, replaced_by: Sequence[str] = (), limit: int) -> list[MemoryRecord]:
        superseded = self.request.superseded
        return await self.ledger.linked(self.scope, ids, replaced_by, superseded=superseded, limit=limit)

    def _add_memories(self, records: Sequence[MemoryRecord], distance: int) -> list[GraphNode]:
        added = self._add(map(memory_node, records), distance)
        by_id = {record.id: record for record in records}
        for node in added:
            record = by_id[node.memory_id or ""]
            self.records[node.id], self.mentions[node.id] = record, _mentions(record)
        return added

    def _add(self, nodes: Iterable[GraphNode], distance: int) -> list[GraphNode]:
        """Add nodes that are not there yet, up to the limit; return those."""
        added: list[GraphNode] = []
        for node in nodes:
            if node.id in self.nodes:
                continue
            if len(self.nodes) >= self.request.limit:
                self.truncated = True
                break
            self.nodes[node.id] = replace(node, distance=distance)
            added.append(self.nodes[node.id])
        return added

    def graph(self) -> Graph:
        """Return the nodes with all edges between them."""
        edges = [edge for id in self.records for edge in self._edges(id) if edge.target in self.nodes]
        return Graph(tuple(self.nodes.values()), tuple(dict.fromkeys(edges)), self.truncated)

    def _edges(self, id: str) -> Iterator[GraphEdge]:
        """Yield the edges from a memory; also to names of which it mentions a part, or that begin its sentences."""
        for name, label, kind in self.mentions[id]:
            if kind is MentionKind.KEY:
                yield GraphEdge(id, EdgeKind.SAME_KEY, key_node(name).id)
            else:
                yield GraphEdge(id, EdgeKind.MENTIONS, name_node(name, label).id)
        record = self.records[id]
        yield GraphEdge(id, EdgeKind.SAID_IN, session_node(record.scope).id)
        if record.superseded_by:
            yield GraphEdge(id, EdgeKind.SUPERSEDED_BY, memory_node_id(record.superseded_by))


def _mentions(record: MemoryRecord) -> list[Mention]:
    return find_mentions(record.content, key=record.key, value=record.value)
