"""Data in the formats of other products, written by their own code if it is installed."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

# Before it is imported: it would write to the home folder.
os.environ.setdefault("MEM0_DIR", tempfile.mkdtemp(prefix="mem0-"))

NOON = 1_767_355_200.0


class _Embedder:
    def embed(self, text: str, memory_action: str | None = None) -> list[float]:
        return [float(len(text) % 7) + 0.1] * 8

    def embed_batch(self, texts: list[str], memory_action: str | None = None) -> list[list[float]]:
        return [self.embed(text) for text in texts]


def _mem0(folder: Path, store: str, vectors: dict[str, Any]) -> Any:
    from mem0 import Memory

    memory = Memory.from_config(
        {
            "vector_store": {"provider": store, "config": {"collection_name": "mem0", **vectors}},
            "history_db_path": str(folder / "history.db"),
            "llm": {"provider": "openai", "config": {"api_key": "none"}},
            "embedder": {"provider": "openai", "config": {"api_key": "none", "embedding_dims": 8}},
        }
    )
    memory.embedding_model = _Embedder()
    return memory


def mem0_tables(folder: Path, dsn: str, *, collection: str = "mem0") -> dict[str, str]:
    """Let mem0 write into PostgreSQL: one memory of alex, one changed and one deleted of bea."""
    where = {"connection_string": dsn, "collection_name": collection}
    memory = _mem0(folder, "pgvector", {**where, "embedding_model_dims": 8})
    ids = _filled(memory)
    memory.db.close()
    memory.vector_store.connection_pool.close()
    memory.entity_store.connection_pool.close()
    return ids


def mem0_folder(folder: Path, store: str) -> dict[str, str]:
    """Let mem0 write: one memory and a chat of alex, one changed and one deleted of bea; return their ids."""
    vectors: dict[str, Any] = {"path": str(folder / store)}
    if store == "qdrant":
        vectors |= {"embedding_model_dims": 8, "on_disk": True}
    memory = _mem0(folder, store, vectors)
    with pytest.MonkeyPatch.context() as patch:
        # It would try to download a model.
        patch.setitem(sys.modules, "fastembed", None)
        ids = _filled(memory)
    talk = [{"role": "user", "content": "Hello there"}, {"role": "assistant", "content": "Good day"}]
    memory.db.save_messages(talk, "run_id=monday&user_id=alex")
    memory.db.close()
    memory.vector_store.client.close()
    return ids


def _filled(memory: Any) -> dict[str, str]:
    def add(text: str, user: str, **more: Any) -> str:
        return str(memory.add(text, user_id=user, infer=False, **more)["results"][0]["id"])

    ids = {
        "lisbon": add("I live in Lisbon", "alex", run_id="monday", metadata={"topic": "home"}),
        "tea": add("Likes tea", "bea"),
        "rain": add("Likes rain", "bea"),
    }
    memory.update(ids["tea"], "Likes green tea")
    memory.delete(ids["rain"])
    return ids


def agent_cli_folder(folder: Path) -> None:
    """Write a folder in the format of agent-cli."""

    def put(path: str, words: str, **meta: str) -> None:
        head = "".join(f"{name}: '{value}'\n" for name, value in meta.items())
        file = folder / "entries" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"---\n{head}---\n{words}\n", encoding="utf-8")

    body = {"conversation_id": "trip", "created_at": "2026-01-02T10:00:00+00:00"}
    later = {"conversation_id": "trip", "created_at": "2026-01-02T10:00:05+00:00"}
    put("trip/turns/user/2026-01-02T10-00-00__t1.md", "I live in Lisbon", id="t1", role="user", **body)
    put("trip/turns/assistant/2026-01-02T10-00-05__t2.md", "Lovely.", id="t2", role="assistant", **later)
    put("trip/facts/2026-01-02T10-00-06__f1.md", "Lives in Lisbon", id="f1", role="memory", source_id="t1", **later)
    put("deleted/trip/facts/x__f0.md", "Lives in Oslo", id="f0", role="memory", replaced_by="f1", **body)
    put("trip/summaries/summary.md", "They spoke of Lisbon.", id="s", role="summary", summary_kind="summary", **later)
    put("trip/facts/broken__f2.md", "?", id="f2")
    (folder / "entries/trip/facts/evil__f3.md").write_text("---\n!!python/object/apply:os.system ['true']\n---\nx\n")
    (folder / "memory_index.json").write_text("[]")


def chatgpt_talk(id: str, *, turns: int = 2) -> dict[str, Any]:
    """Return a conversation with two versions of the first question; the second is displayed."""

    def node(name: str, parent: str | None, role: str | None, words: str = "", **more: Any) -> dict[str, Any]:
        message = {
            "id": f"{id}-{name}",
            "author": {"role": role},
            "create_time": NOON + len(name),
            "content": {"content_type": "text", "parts": [words]},
            "weight": 1.0,
            "recipient": "all",
            **more,
        }
        return {"id": name, "parent": parent, "children": [], "message": message if role else None}

    nodes = [
        node("root", None, None),
        node("system", "root", "system", "You are kind", weight=0.0),
        node("first", "system", "user", "Where is Oslo?"),
        node("second", "system", "user", "I live in Lisbon. Where is it?"),
        node("tooled", "second", "assistant", "search('Lisbon')", recipient="browser"),
        node("answer", "tooled", "assistant", "In Portugal."),
    ]
    last = "answer"
    for number in range(2, turns):
        nodes.append(node(f"more{number}", last, "user" if number % 2 == 0 else "assistant", f"Line {number}"))
        last = f"more{number}"
    talk = {"id": id, "title": "Lisbon", "create_time": NOON, "current_node": last}
    return {**talk, "mapping": {each["id"]: each for each in nodes}}


def chatgpt_zip(path: Path, talks: list[Any]) -> Path:
    """Write an export archive of ChatGPT."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("conversations.json", json.dumps(talks))
        archive.writestr("user.json", "{}")
        archive.writestr("chat.html", "<html></html>")
    return path


def claude_zip(path: Path) -> Path:
    """Write an export archive of Claude with memories and a project."""

    def said(id: str, sender: str, words: str) -> dict[str, Any]:
        content = [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": words}] if words else []
        return {"uuid": id, "sender": sender, "text": words, "content": content, "created_at": "2026-02-03T08:00:00Z"}

    talk = {
        "uuid": "c1",
        "name": "Bread",
        "summary": "",
        "created_at": "2026-02-03T08:00:00Z",
        "chat_messages": [
            said("m1", "human", "My oven is small"),
            said("m2", "assistant", "Use a pan."),
            said("m3", "human", ""),
        ],
    }
    memories = [
        {"conversations_memory": "# Work\n\nBakes for a living.\n", "project_memories": {"p1": "Rye sells best."}}
    ]
    projects = [{"uuid": "p1", "name": "Shop", "prompt_template": "Answer briefly", "docs": [{"content": "x"}]}]
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("data/conversations.json", json.dumps([talk]))
        archive.writestr("data/memories.json", json.dumps(memories))
        archive.writestr("data/projects.json", json.dumps(projects))
        archive.writestr("data/users.json", "[]")
    return path


def letta_file(path: Path) -> Path:
    """Write an agent file of Letta."""

    def said(number: int, role: str, words: str) -> dict[str, Any]:
        content = [{"type": "text", "text": words, "signature": None}]
        at = f"2025-10-31T22:56:5{number}.459100+00:00"
        return {"type": "message", "id": f"message-{number}", "role": role, "content": content, "created_at": at}

    agent = {
        "id": "agent-0",
        "name": "sam",
        "system": "You are Sam",
        "memory_blocks": [],
        "block_ids": ["block-0", "block-1"],
        "in_context_message_ids": ["message-0"],
        "messages": [
            said(0, "system", "You are Sam"),
            said(1, "user", "I race boats"),
            said(2, "assistant", "Which ones?"),
            said(3, "tool", "{}"),
        ],
    }
    blocks = [
        {"id": "block-0", "label": "human", "value": "First name: Chad\n\nInterests: sailing\n", "metadata": {}},
        {"id": "block-1", "label": "persona", "value": "I am Sam.", "metadata": {}},
    ]
    passages = [{"id": "p-1", "text": "Sailed around Malta", "created_at": "2025-09-01T00:00:00Z", "tags": ["trip"]}]
    stored = {
        "agents": [agent],
        "groups": [],
        "blocks": blocks,
        "files": [],
        "sources": [],
        "tools": [],
        "passages": passages,
    }
    path.write_text(json.dumps(stored))
    return path


def graphiti_file(path: Path) -> Path:
    """Write episodes and edges as JSON Lines of Graphiti's models."""
    edges = [
        {"uuid": "e1", "group_id": "alex", "name": "LIVES_IN", "fact": "Alex lives in Oslo", "episodes": ["p1"],
         "source_node_uuid": "a", "target_node_uuid": "b", "created_at": "2024-01-01T00:00:00Z",
         "valid_at": "2020-05-01T00:00:00Z", "invalid_at": "2024-06-01T00:00:00Z",
         "expired_at": "2024-06-02T00:00:00Z"},
        {"uuid": "e2", "group_id": "alex", "name": "LIVES_IN", "fact": "Alex lives in Lisbon", "episodes": [],
         "source_node_uuid": "a", "target_node_uuid": "c", "created_at": "2024-06-02T00:00:00Z",
         "valid_at": "2024-06-01T00:00:00Z", "invalid_at": None, "expired_at": None},
    ]  # fmt: skip
    episodes = [
        {"uuid": "p1", "group_id": "alex", "name": "hello", "source": "message", "source_description": "chat",
         "content": "alex (user): I moved to Lisbon\nbot (assistant): How nice", "valid_at": "2024-06-01T00:00:00Z"},
        {"uuid": "p2", "group_id": "alex", "name": "mail", "source": "text", "source_description": "mail",
         "content": "The flat is on the third floor", "valid_at": "2024-06-03T00:00:00Z"},
    ]  # fmt: skip
    path.write_text("".join(json.dumps(each) + "\n" for each in [*edges, *episodes]) + "not json\n[1]\n")
    return path


def langgraph_store(path: Path) -> None:
    """Let LangGraph write a SQLite store."""
    from langgraph.store.sqlite import SqliteStore

    with SqliteStore.from_conn_string(str(path)) as store:
        _put_items(store)


def langgraph_tables(dsn: str) -> None:
    """Let LangGraph write a store in PostgreSQL; one item of alex expires after an hour."""
    from langgraph.store.postgres import PostgresStore

    with PostgresStore.from_conn_string(dsn) as store:
        _put_items(store, ttl=60)


def _put_items(store: Any, **lasting: Any) -> None:
    store.setup()
    store.put(("memories", "alex"), "m1", {"content": "Likes green tea", "context": "breakfast"}, **lasting)
    store.put(("memories", "bea"), "m2", {"kind": "Memory", "content": {"content": "Rides a bike"}})
    store.put(("memories", "alex"), "m3", {})
