"""Imports from other products: real sources, times, ids, owners, repetition, quotas."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import tests.support.importer_samples as samples
from recollect import AsyncMemory, Memory, Status
from recollect.config.settings import Settings
from recollect.errors import InvalidInput, QuotaReached
from recollect.testing.fake_embedder import FakeEmbedder
from recollect.transfer.importers import mem0, run
from recollect.transfer.importers.items import ImportReport
from recollect.transfer.importers.source import ImportSource
from tests.support.cli_runner import Cli
from tests.support.postgres_server import running_server


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    settings = Settings(home=tmp_path / "home", worker=False, learn="rules")
    with Memory(settings=settings, embedder=FakeEmbedder(16)) as memory:
        yield memory


def everything(memory: Memory) -> list[dict[str, Any]]:
    return list(memory.export(sessions=False))


def texts(memory: Memory, **where: Any) -> list[str]:
    return [line["memory"] for line in everything(memory) if all(line[name] == is_ for name, is_ in where.items())]


def counts(memory: Memory) -> dict[str, int]:
    """Return the numbers of records; the size and the vectors change in the background."""
    return {name: count for name, count in memory.admin.stats().items() if name not in ("bytes", "vectors")}


def twice(memory: Memory, source: Path | str, **terms: Any) -> ImportReport:
    """Import after a dry run, and once more, which must change nothing; return the first report."""
    would = memory.admin.import_from(source, dry_run=True, **terms)
    assert everything(memory) == []
    first = memory.admin.import_from(source, **terms)
    assert (would.memories, would.turns, would.added, would.users) == (
        first.memories,
        first.turns,
        first.added,
        first.users,
    )
    assert would.left == first.left
    after = everything(memory), counts(memory)
    repeated = memory.admin.import_from(source, **terms)
    assert (repeated.added, repeated.present) == (0, first.added)
    assert (everything(memory), counts(memory)) == after
    return first


@pytest.mark.parametrize("store", ["qdrant", "chroma"])
def test_mem0_keeps_users_runs_times_and_earlier_versions(memory: Memory, tmp_path: Path, store: str) -> None:
    folder = tmp_path / "mem0"
    folder.mkdir()
    ids = samples.mem0_folder(folder, store)
    moved = twice(memory, folder, everyone=True)
    assert moved.kind == "mem0"
    assert (moved.memories, moved.turns, moved.users) == (3, 2, ("alex", "bea"))
    assert moved.left == {"deleted in the source": 1}
    lisbon = next(line for line in everything(memory) if line["memory"] == "I live in Lisbon")
    assert (lisbon["user_id"], lisbon["session_id"], lisbon["source"]) == ("alex", "monday", "import:mem0")
    assert lisbon["metadata"]["topic"] == "home"
    assert lisbon["metadata"]["imported"] == {"from": "mem0", "id": ids["lisbon"]}
    assert texts(memory, status=str(Status.SUPERSEDED)) == ["Likes tea"]
    assert texts(memory, user_id="bea", status="active") == ["Likes green tea"]
    [first, second] = memory.sessions.turns(user_id="alex", session_id="monday")
    assert [first.content, second.content] == ["Hello there", "Good day"]


def test_a_store_can_be_read_from_several_threads(tmp_path: Path) -> None:
    samples.mem0_folder(tmp_path, "qdrant")
    items = iter(mem0.read(ImportSource(str(tmp_path))))
    results = [next(items)]
    with ThreadPoolExecutor(1) as other:
        results += other.submit(list, items).result()
    assert len(results) == 7


def test_the_history_of_mem0_alone_is_imported_for_one_user(memory: Memory, tmp_path: Path) -> None:
    samples.mem0_folder(tmp_path, "chroma")
    moved = memory.admin.import_from(tmp_path / "history.db", user_id="alex", kind="mem0")
    assert texts(memory, category="fact") == ["I live in Lisbon", "Likes green tea"]
    assert moved.left == {"deleted in the source": 1}


def test_code_in_a_pickle_is_not_run(memory: Memory, tmp_path: Path) -> None:
    import pickle
    import sqlite3

    class Evil:
        def __reduce__(self) -> Any:
            return Path.touch, (tmp_path / "ran",)

    folder = tmp_path / "q" / "collection" / "mem0"
    folder.mkdir(parents=True)
    with sqlite3.connect(folder / "storage.sqlite") as points:
        points.execute("CREATE TABLE points (id TEXT PRIMARY KEY, point BLOB)")
        points.execute("INSERT INTO points VALUES ('a', ?)", (pickle.dumps(Evil()),))
    points.close()
    moved = memory.admin.import_from(tmp_path / "q", user_id="alex")
    assert not (tmp_path / "ran").exists()
    assert moved.added == 0
    assert "cannot be read safely" in next(iter(moved.left))


def test_facts_of_agent_cli_cite_their_turns(memory: Memory, tmp_path: Path) -> None:
    samples.agent_cli_folder(tmp_path / "mem")
    moved = twice(memory, tmp_path / "mem", user_id="alex")
    assert (moved.kind, moved.memories, moved.turns, moved.sessions) == ("agent-cli", 1, 2, 1)
    assert sum(moved.left.values()) == 3
    [turn, answer] = memory.sessions.turns(user_id="alex", session_id="trip")
    assert (turn.content, turn.said_at) == ("I live in Lisbon", datetime(2026, 1, 2, 10, tzinfo=UTC))
    [fact] = [line for line in everything(memory) if line["category"] == "fact"]
    assert (fact["evidence"], fact["trust"]) == ([turn.id], "low")
    [session] = memory.sessions.list(user_id="alex")
    assert session.summary == "They spoke of Lisbon."
    memory.erasure.erase(user_id="alex", turn_id=turn.id)
    assert texts(memory) == ["Lovely."]
    assert answer.name is None


def test_chatgpt_conversations_become_sessions_with_the_visible_branch(memory: Memory, tmp_path: Path) -> None:
    talks = [samples.chatgpt_talk("one"), {"id": "broken", "mapping": 7}, samples.chatgpt_talk("two", turns=6)]
    source = samples.chatgpt_zip(tmp_path / "export.zip", talks)
    moved = twice(memory, source, user_id="alex", project_id="chats")
    assert (moved.kind, moved.turns, moved.sessions) == ("chatgpt", 8, 2)
    assert moved.left["messages of role system are not imported"] == 2
    assert moved.left["tool calls are not imported"] == 2
    assert any("unexpected format" in why for why in moved.left)
    turns = memory.sessions.turns(user_id="alex", project_id="chats", session_id="one")
    assert [turn.content for turn in turns] == ["I live in Lisbon. Where is it?", "In Portugal."]
    assert turns[0].said_at == datetime.fromtimestamp(samples.NOON + len("second"), UTC)
    hits = memory.search("Lisbon", user_id="alex", project_id="chats")
    assert "I live in Lisbon. Where is it?" in [hit.memory for hit in hits]


def test_new_turns_of_a_continued_conversation_are_imported(memory: Memory, tmp_path: Path) -> None:
    samples.chatgpt_zip(tmp_path / "then.zip", [samples.chatgpt_talk("one")])
    samples.chatgpt_zip(tmp_path / "now.zip", [samples.chatgpt_talk("one", turns=5)])
    memory.admin.import_from(tmp_path / "then.zip", user_id="alex")
    assert memory.admin.import_from(tmp_path / "now.zip", user_id="alex").added == 3
    turns = memory.sessions.turns(user_id="alex", session_id="one")
    assert [turn.content for turn in turns][-3:] == ["Line 2", "Line 3", "Line 4"]
    assert [turn.position for turn in turns] == [1, 2, 3, 4, 5]


def test_imported_turns_are_learned_from_on_request_only(memory: Memory, tmp_path: Path) -> None:
    source = samples.chatgpt_zip(tmp_path / "export.zip", [samples.chatgpt_talk("one")])
    memory.admin.import_from(source, user_id="alex")
    [session] = memory.sessions.list(user_id="alex")
    assert (session.learned_to, session.turn_count) == (2, 2)
    assert session.closed_at == session.last_turn_at
    assert (session.metadata["title"], memory.jobs.list()) == ("Lisbon", [])
    moved = memory.admin.import_from(source, user_id="bea", learn=True)
    assert moved.learning == 1
    [job] = memory.jobs.list()
    assert job.priority < 0
    memory.jobs.run_pending()
    assert "I live in Lisbon" in texts(memory, user_id="bea")


def test_claude_conversations_memories_and_projects(memory: Memory, tmp_path: Path) -> None:
    moved = twice(memory, samples.claude_zip(tmp_path / "claude.zip"), user_id="alex")
    assert (moved.kind, moved.turns, moved.memories) == ("claude", 2, 3)
    assert moved.left == {"a message without text": 1, "documents of a project are not imported (1)": 1}
    assert [turn.content for turn in memory.sessions.turns(user_id="alex", session_id="c1")] == [
        "My oven is small",
        "Use a pan.",
    ]
    assert texts(memory, project_id="p1", category="fact") == ["Rye sells best."]
    assert texts(memory, category="instruction") == ["Answer briefly"]
    assert "Work: Bakes for a living." in texts(memory, trust="low")


def test_letta_agent_files_of_either_shape(memory: Memory, tmp_path: Path) -> None:
    moved = twice(memory, samples.letta_file(tmp_path / "sam.af"), user_id="alex")
    assert (moved.kind, moved.memories, moved.turns) == ("letta", 3, 2)
    assert moved.left["the persona describes the agent, not the user"] == 1
    assert texts(memory, category="fact") == ["Sailed around Malta", "First name: Chad", "Interests: sailing"]
    block = {"label": "human", "value": "Likes rye", "updated_at": "2025-01-01T00:00:00Z"}
    first = {"agent_type": "memgpt_agent", "name": "old", "core_memory": [block], "messages": []}
    (tmp_path / "old.af").write_text(json.dumps(first))
    memory.admin.import_from(tmp_path / "old.af", user_id="bea")
    assert texts(memory, user_id="bea") == ["Likes rye"]


def test_graphiti_facts_keep_their_validity(memory: Memory, tmp_path: Path) -> None:
    source = samples.graphiti_file(tmp_path / "graph.jsonl")
    moved = twice(memory, source, of=["alex"])
    assert (moved.kind, moved.memories, moved.turns) == ("zep", 3, 2)
    assert moved.left == {"not JSON": 1, "not an object": 1}
    then = memory.search("where does Alex live", user_id="alex", as_of="2022-01-01T00:00:00Z")
    now = memory.search("where does Alex live", user_id="alex")
    assert "Alex lives in Oslo" not in [hit.memory for hit in now]
    assert "Alex lives in Lisbon" in [hit.memory for hit in now]
    assert "Alex lives in Oslo" in [hit.memory for hit in then]
    oslo = next(line for line in everything(memory) if line["memory"] == "Alex lives in Oslo")
    assert (oslo["valid_from"][:4], oslo["valid_to"][:7], oslo["status"]) == ("2020", "2024-06", "superseded")


def test_langgraph_stores_in_sqlite_and_as_lines(memory: Memory, tmp_path: Path) -> None:
    samples.langgraph_store(tmp_path / "store.db")
    moved = twice(memory, tmp_path / "store.db", everyone=True)
    assert (moved.kind, moved.users) == ("langgraph", ("alex", "bea"))
    assert texts(memory, user_id="alex") == ["Likes green tea"]
    assert texts(memory, user_id="bea") == ["Rides a bike"]
    item = {
        "namespace": ["memories", "cy"],
        "key": "k",
        "value": {"text": "Plays chess"},
        "created_at": "2026-01-01T00:00:00Z",
    }
    (tmp_path / "items.jsonl").write_text(json.dumps(item) + "\n" + json.dumps({"namespace": 3, "key": "x"}) + "\n")
    moved = memory.admin.import_from(tmp_path / "items.jsonl", of=["cy"])
    assert (moved.added, sum(moved.left.values())) == (1, 1)


NOTES = """---
tags: [home, work]
created_at: 2025-05-06T07:08:09Z
importance: 0.8
---
# About me

I live in Lisbon
near the river.

## Work

- Uses *Vim*
- [x] Deploys on Fridays
  with care

```sh
make test

make lint
```
"""


def test_markdown_bullets_and_paragraphs_are_memories_under_their_headings(memory: Memory, tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "MEMORY.md").write_text(NOTES)
    (tmp_path / "notes" / "picture.png").write_bytes(b"\x89PNG")
    moved = twice(memory, tmp_path / "notes", user_id="alex")
    assert moved.left == {"not Markdown": 1}
    lines = {line["memory"]: line for line in everything(memory)}
    assert set(lines) == {
        "About me: I live in Lisbon\nnear the river.",
        "Work: Uses *Vim*",
        "Work: Deploys on Fridays\nwith care",
        "Work: ```sh\nmake test\n\nmake lint\n```",
    }
    vim = lines["Work: Uses *Vim*"]
    assert vim["created_at"] == "2025-05-06T07:08:09+00:00"
    assert (vim["tags"], vim["importance"]) == (["home", "work"], 0.8)
    assert vim["metadata"]["under"] == ["About me", "Work"]


def test_an_export_of_recollect_keeps_every_field(memory: Memory, tmp_path: Path) -> None:
    stored = memory.add("Likes tea", user_id="ann")
    memory.delete(stored.id, user_id="ann")
    before = everything(memory)
    (tmp_path / "out.jsonl").write_text("".join(json.dumps(line) + "\n" for line in before))
    with Memory(home=tmp_path / "two", embedder=FakeEmbedder(16)) as other:
        with pytest.raises(InvalidInput, match="not both"):
            other.admin.import_from(tmp_path / "out.jsonl", user_id="ann", everyone=True)
        assert other.admin.import_from(tmp_path / "out.jsonl", of=["bob"]).added == 0
        moved = other.admin.import_from(tmp_path / "out.jsonl", of=["ann"])
        assert (moved.kind, moved.added) == ("recollect", 1)
        assert everything(other) == before


def test_only_the_selected_users_are_imported(memory: Memory, tmp_path: Path) -> None:
    samples.langgraph_store(tmp_path / "store.db")
    moved = memory.admin.import_from(tmp_path / "store.db", of=["alex"])
    assert moved.users == ("alex",)
    assert moved.left["it is of user 'bea', who was not selected"] == 1
    assert memory.admin.users() == ["alex"]
    nobody = memory.admin.import_from(tmp_path / "store.db")
    assert nobody.added == 0
    assert memory.admin.import_from(tmp_path / "store.db", user_id="cy").users == ("cy",)
    assert memory.admin.users() == ["alex", "cy"]


def test_secrets_and_hidden_characters_are_removed(memory: Memory, tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("- my password is hunter2xyz9\n\n- Likes te\u200ba\u202e\n")
    moved = memory.admin.import_from(tmp_path / "notes.md", user_id="alex")
    assert moved.redacted == 1
    assert not [text for text in texts(memory) if "hunter2" in text or "\u202e" in text]


def test_the_command_line_reports_counts_and_reasons(tmp_path: Path) -> None:
    cli = Cli(tmp_path / "home")
    samples.agent_cli_folder(tmp_path / "mem")
    output = cli("import", str(tmp_path / "mem"), "--user", "alex", "--dry-run").stdout
    assert "agent-cli: " in output
    assert "Found 1 memory, 2 turns in 1 session of user alex." in output
    assert "Would add 3; 0 existed already." in output
    assert "Nothing was written." in output
    assert cli.json("users")["results"] == []
    output = cli("import", str(tmp_path / "mem"), "--user", "alex").stdout
    assert "Added 3; 0 existed already." in output
    assert "Left out 1: replaced in the source" in output
    assert cli.json("import", str(tmp_path / "mem"), "--user", "alex")["present"] == 3
    cli("export", str(tmp_path / "all.jsonl"))
    would = cli.json("--home", str(tmp_path / "other"), "import", str(tmp_path / "all.jsonl"), "--dry-run")
    assert (would["kind"], would["added"], would["users"]) == ("recollect", 3, ["alex"])
    samples.langgraph_store(tmp_path / "store.db")
    refused = cli("import", str(tmp_path / "store.db"), code=2).stdout
    assert "it is of user 'bea', who was not selected" in refused
    (tmp_path / "empty").mkdir()
    assert "is not recognised" in cli.error("import", str(tmp_path / "empty"), "--user", "a", code=2)
    nowhere = str(tmp_path / "nowhere")
    assert "does not exist" in cli.error("import", nowhere, "--from", "letta", "--user", "a", code=2)


def test_a_killed_import_can_be_continued(tmp_path: Path) -> None:
    talks = [samples.chatgpt_talk(f"talk{n}", turns=20) for n in range(15)]
    source = samples.chatgpt_zip(tmp_path / "export.zip", talks)
    home = tmp_path / "home"
    code = (
        "import os, sys; from recollect import Memory; from recollect.config.settings import Settings; "
        "from recollect.testing.fake_embedder import FakeEmbedder; "
        "from recollect.transfer.importers import run; run.BATCH_SIZE = 50; "
        f"m = Memory(settings=Settings(home={str(home)!r}, worker=False), embedder=FakeEmbedder(16)); "
        f"m.admin.import_from({str(source)!r}, user_id='alex', progress=lambda done: os.kill(os.getpid(), 9))"
    )
    killed = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True)
    assert killed.returncode == -9, killed.stderr
    with Memory(settings=Settings(home=home, worker=False), embedder=FakeEmbedder(16)) as memory:
        there = memory.admin.stats()["turns"]
        moved = memory.admin.import_from(source, user_id="alex")
        assert 0 < there == moved.present < moved.turns == 300
        assert memory.admin.stats()["turns"] == 300
        assert len({line["id"] for line in memory.export(sessions=False)}) == 300
        assert all(each.closed_at is not None for each in memory.sessions.list(user_id="alex", limit=1000))
        turns = memory.sessions.turns(user_id="alex", session_id="talk14")
        assert [turn.position for turn in turns] == list(range(1, 21))


async def test_imports_into_postgres_are_the_same(tmp_path: Path) -> None:
    talks = [samples.chatgpt_talk(f"talk{n}", turns=4) for n in range(20)]
    source = samples.chatgpt_zip(tmp_path / "export.zip", talks)
    samples.agent_cli_folder(tmp_path / "mem")
    async with running_server().database() as dsn:
        settings = Settings(home=tmp_path, database=dsn, worker=False)
        async with AsyncMemory(settings=settings, embedder=FakeEmbedder(16)) as memory:
            for place, count in ((source, 80), (tmp_path / "mem", 3)):
                assert (await memory.admin.import_from(place, user_id="alex")).added == count
                assert (await memory.admin.import_from(place, user_id="alex")).present == count
            assert len(await memory.sessions.list(user_id="alex", limit=1000)) == 21
            assert len([line async for line in memory.export(sessions=False, embeddings=True)]) == 83


def opened(home: Path, most: int = 0) -> Memory:
    settings = Settings(home=home, worker=False, learn="off", user_max_records=most)
    return Memory(settings=settings, embedder=FakeEmbedder(16))


def figures(moved: ImportReport) -> tuple[Any, ...]:
    return moved.added, moved.present, moved.kept, moved.redacted, dict(moved.left), moved.named, moved.refused


def items(path: Path, *report: tuple[str, str]) -> Path:
    """Write items of LangGraph with their users."""
    lines = [
        {"namespace": ["memories", user], "key": f"k{number}", "value": {"text": text}}
        for number, (user, text) in enumerate(report)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_a_dry_run_counts_duplicates_like_the_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "BATCH_SIZE", 2)
    report = [("alex", "Likes tea"), ("alex", "Has a cat"), ("alex", "Likes tea"), ("bea", "Likes tea")]
    source = items(tmp_path / "items.jsonl", *report, ("alex", "Lives in Oslo"), ("alex", "Likes tea"))
    with opened(tmp_path / "home") as memory:
        memory.add("Lives in Oslo", user_id="alex")
        would = memory.admin.import_from(source, everyone=True, dry_run=True)
        assert (would.added, would.present) == (3, 3)
        assert figures(memory.admin.import_from(source, everyone=True)) == figures(would)
        assert memory.admin.stats(user_id="alex")["memories"] == 3


def test_a_dry_run_finds_the_value_of_a_key_that_stays(tmp_path: Path) -> None:
    with opened(tmp_path / "theirs") as theirs:
        for confidence, city in ((0.6, "Oslo"), (0.9, "Rome"), (0.9, "Bern")):
            theirs.add(f"Lives in {city}", user_id="alex", key="city", value=city, confidence=confidence)
        lines = list(theirs.export())
    (tmp_path / "all.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    with opened(tmp_path / "home") as memory:
        memory.add("Lives in Paris", user_id="alex", key="city", value="Paris", confidence=1.0)
        would = memory.admin.import_from(tmp_path / "all.jsonl", everyone=True, dry_run=True)
        assert (would.added, would.kept) == (2, 1)
        assert figures(memory.admin.import_from(tmp_path / "all.jsonl", everyone=True)) == figures(would)


@pytest.mark.parametrize("batch", [3, 2000])
def test_records_over_the_quota_are_skipped_and_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch: int
) -> None:
    monkeypatch.setattr(run, "BATCH_SIZE", batch)
    report = [("alex", f"Boat {number % 6}") for number in range(12)]
    source = items(tmp_path / "items.jsonl", *report, ("bea", "Rides a bike"))
    with opened(tmp_path / "home", most=5) as memory:
        memory.add("Likes tea", user_id="alex")
        would = memory.admin.import_from(source, everyone=True, dry_run=True)
        moved = memory.admin.import_from(source, everyone=True)
        assert figures(moved) == figures(would)
        [(why, count)] = moved.left.items()
        assert "at most 5 memories" in why
        # Four boats and a bike; the fifth and the sixth boat come twice each.
        assert (moved.added, moved.present, count, moved.refused) == (5, 4, 4, 4)
        assert moved.named[0].where == "items.jsonl, line 5"
        assert memory.admin.stats(user_id="alex")["memories"] == 5
        assert [hit.memory for hit in memory.get_all(user_id="bea")] == ["Rides a bike"]
    with opened(tmp_path / "home", most=50) as memory:
        assert memory.admin.import_from(source, everyone=True).added == 2


def test_a_session_without_stored_turns_is_not_created(tmp_path: Path) -> None:
    source = samples.chatgpt_zip(tmp_path / "export.zip", [samples.chatgpt_talk("one"), samples.chatgpt_talk("two")])
    with opened(tmp_path / "home", most=2) as memory:
        moved = memory.admin.import_from(source, user_id="alex")
        assert (moved.added, moved.refused) == (2, 2)
        assert [session.scope.session for session in memory.sessions.list(user_id="alex")] == ["one"]


def test_lines_of_an_export_over_the_quota_are_reported(tmp_path: Path) -> None:
    with opened(tmp_path / "theirs") as theirs:
        for number in range(4):
            theirs.add(f"Boat {number}", user_id="alex")
        lines = list(theirs.export())
    with opened(tmp_path / "home", most=3) as memory, pytest.raises(QuotaReached, match="the 0 lines before are"):
        memory.import_(lines)
