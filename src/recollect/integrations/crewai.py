"""Memory for CrewAI: the `memory` of a crew or an agent, which needs no embedding service and no LLM of its own."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from operator import methodcaller
from typing import Any

from recollect.errors import InvalidInput, MissingExtra, Unsupported
from recollect.integrations.common import RunMemory, logged_failures
from recollect.model.memory import MemoryRecord as StoredMemory
from recollect.service.tool_memory import quoted_line
from recollect.sync import Memory as BlockingMemory

try:
    from crewai.memory.types import MemoryMatch, MemoryRecord
    from crewai.memory.unified_memory import Memory
    from crewai.memory.utils import join_scope_paths
    from pydantic import PrivateAttr
except ImportError as error:
    raise MissingExtra("memory for CrewAI", "crewai") from error

BY = "crewai"
# Tags with this prefix are the scopes that a memory is in.
_SCOPE_TAG = "crewai:"
# How CrewAI describes a run of an agent. The task ends at the first match, so that a result never passes for a task.
_RUN = re.compile(r"(?:Task|Input): (?P<task>.*?)\nAgent: .*?\nResult: (?P<result>.*)", re.DOTALL)


class RunText(str):
    """The description of a run, made by CrewAI; texts of a model are plain, whatever their form."""

    __slots__ = ()


class CrewMemory(Memory):
    """The memories of a user, for `Crew(memory=...)` and `Agent(memory=...)`.

    A recall finds everything known about the user. Tasks and results of runs are learned from in the background;
    what an agent saves by a tool has low trust, and waits for review if it reads like an instruction. Scopes and
    categories of CrewAI are tags. `forget` and `reset` affect only what was saved by `remember`.
    """

    _memory: BlockingMemory = PrivateAttr()
    _run: RunMemory = PrivateAttr()

    def __init__(
        self,
        memory: BlockingMemory,
        *,
        user_id: str,
        project_id: str | None = None,
        session_id: str | None = None,
        **options: Any,
    ) -> None:
        """Create a memory; of CrewAI's options `read_only` and `root_scope` apply."""
        if not isinstance(memory, BlockingMemory):
            raise InvalidInput(f"`memory` must be a Memory, whose calls block, got {type(memory).__name__}")
        run = RunMemory.of(memory, by=BY, user_id=user_id, project_id=project_id, session_id=session_id)
        super().__init__(storage=_NoStorage(), **options)  # type: ignore[arg-type]
        self._memory, self._run = memory, run

    def recall(
        self,
        query: str,
        scope: str | None = None,
        categories: list[str] | None = None,
        limit: int = 10,
        *_: Any,
        **__: Any,
    ) -> list[MemoryMatch]:
        """Return the memories that help with the query, best first."""
        self.drain_writes()
        path = self._path(scope)
        # A task often reads like a command, and the query of a tool is a few words: only small talk is not searched.
        options = {"limit": limit, "filters": _filters(path if path != "/" else None, categories), "is_fact": False}
        result = None
        with logged_failures("a task has no memories"):
            result = self._run.run_blocking(lambda run: run.recall(query, **options))
        return [MemoryMatch(record=_to_record(hit.record), score=hit.score) for hit in result or ()]

    def extract_memories(self, content: str) -> list[str]:
        """Return the description of a run whole: facts are extracted once it is stored."""
        return [RunText(content)]

    def remember(
        self,
        content: str,
        scope: str | None = None,
        categories: list[str] | None = None,
        metadata: dict[str, Any] | None = None,
        importance: float | None = None,
        source: str | None = None,
        private: bool = False,
        agent_role: str | None = None,
        root_scope: str | None = None,
    ) -> MemoryRecord | None:
        """Store a statement; return None if this memory is read-only."""
        if private:
            raise Unsupported("`private` must be False: all agents of a user share memories; use another `user_id`")
        if self.read_only:
            return None
        path = self._path(scope, root_scope)
        fields: dict[str, Any] = {"tags": [*(categories or ()), *_scope_tags(path)], "metadata": metadata or {}}
        if source is not None:
            fields["metadata"] = {**fields["metadata"], "source": source}
        if importance is not None:
            fields["importance"] = importance
        self._run.run_blocking(lambda run: run.run_tool(lambda tool: tool.store(content, fields)))
        return MemoryRecord(content=content, scope=path, categories=categories or [])

    def remember_many(self, contents: list[str], *details: Any, **options: Any) -> list[MemoryRecord]:
        """Store statements, with the details of `remember`, and learn from runs, in the background."""
        if contents and not self.read_only:
            self._submit_save(self._store_all, contents, *details, **options)
        return []

    def _store_all(self, contents: list[str], *details: Any, **options: Any) -> None:
        for content in contents:
            with logged_failures("a result of a task is not stored"):
                if isinstance(content, RunText):
                    remember = methodcaller("remember", run_messages(content))
                    self._run.run_blocking(remember)
                else:
                    self.remember(content, *details, **options)

    def list_records(self, scope: str | None = None, limit: int = 200, offset: int = 0) -> list[MemoryRecord]:
        """Return what was saved by `remember` in a scope, the newest first."""
        return [_to_record(each) for each in self._saved(self._path(scope))[offset : offset + limit]]

    def forget(
        self,
        scope: str | None = None,
        categories: list[str] | None = None,
        older_than: datetime | None = None,
        metadata_filter: dict[str, Any] | None = None,
        record_ids: list[str] | None = None,
    ) -> int:
        """Forget memories, which `undo` restores; return how many."""
        if record_ids is None:
            filters: list[dict[str, Any]] = [{f"metadata.{name}": of} for name, of in (metadata_filter or {}).items()]
            if older_than is not None:
                at = older_than if older_than.tzinfo else older_than.replace(tzinfo=UTC)
                filters.append({"created_at": {"lt": at}})
            record_ids = [each.id for each in self._saved(self._path(scope), categories, filters)]
        for id in record_ids:
            self._memory.acting_as(BY).delete(id, user_id=self._run.scope.user)
        return len(record_ids)

    def reset(self, scope: str | None = None) -> None:
        """Forget what was saved by `remember` in a scope; `undo` restores it."""
        self.forget(scope)

    def reset_all(self) -> None:
        """Forget what was saved by `remember` in any scope; `undo` restores it."""
        self.forget(record_ids=[each.id for each in self._saved("/")])

    def close(self) -> None:
        """Finish pending writes; the memory stays open, since its owner may use it elsewhere."""
        self.drain_writes()

    def _saved(
        self, path: str, categories: list[str] | None = None, more: Sequence[dict[str, Any]] = ()
    ) -> list[StoredMemory]:
        self.drain_writes()
        ids = self._run.scope
        filters = {"and": [_filters(path, categories), *more]}
        return list(
            self._memory.get_all(user_id=ids.user, project_id=ids.project or None, filters=filters, limit=1000)
        )

    def _path(self, scope: str | None, root: str | None = None) -> str:
        return str(join_scope_paths(root or self.root_scope, scope))


class _NoStorage:
    """In the place of a vector store; what CrewAI does on a store alone is refused."""

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise Unsupported("not available with CrewMemory: use the methods of the Memory it was made with")

    get_record = update = list_scopes = get_scope_info = list_categories = _refuse


def run_messages(text: str) -> list[dict[str, str]]:
    """Return the task and the result of a run as messages of user and model."""
    run = _RUN.fullmatch(text)
    parts = [("user", run["task"]), ("assistant", run["result"])] if run else [("assistant", str(text))]
    return [{"role": role, "content": content} for role, content in parts if content.strip()]


def _scope_tags(path: str) -> list[str]:
    """Return a tag for each scope that contains the path."""
    labels = [label for label in path.split("/") if label]
    return [f"{_SCOPE_TAG}/{'/'.join(labels[:depth])}" for depth in range(len(labels) + 1)]


def _filters(path: str | None, categories: list[str] | None) -> dict[str, Any]:
    parts: list[dict[str, Any]] = [] if path is None else [{"tags": {"contains": _scope_tags(path)[-1]}}]
    if categories:
        parts.append({"or": [{"tags": {"contains": category}} for category in categories]})
    return {"and": parts} if parts else {}


def _to_record(stored: StoredMemory) -> MemoryRecord:
    """Return a memory, sanitised for a prompt, in the form of CrewAI."""
    scopes = [tag.removeprefix(_SCOPE_TAG) for tag in stored.tags if tag.startswith(_SCOPE_TAG)]
    return MemoryRecord(
        id=stored.id,
        content=quoted_line(stored),
        scope=max(scopes, key=len, default="/"),
        categories=[tag for tag in stored.tags if not tag.startswith(_SCOPE_TAG)],
        metadata={"date": stored.stated_at.date().isoformat()},
        importance=stored.importance,
        created_at=stored.created_at.replace(tzinfo=None),
    )
