"""Past transcripts of coding agents: prompts and final answers, in the projects of their recorded folders."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from recollect import Memory
from recollect.config.settings import Settings
from recollect.testing.fake_embedder import FakeEmbedder
from recollect.transfer.importers.items import recognise_source
from recollect.transfer.importers.source import ImportSource
from tests.support.agent_transcripts import ANSWER, PROMPT, SECRET, TOOL_OUTPUT, WRITERS
from tests.support.api_server import as_user, served
from tests.support.cli_runner import Cli
from tests.support.coding_agents import event
from tests.support.git_repositories import git, make_repository
from tests.support.remember_samples import wait_until

EVERY_CLIENT = pytest.mark.parametrize("kind", WRITERS)


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    settings = Settings(home=tmp_path / "home", worker=False, learn="rules")
    with Memory(settings=settings, embedder=FakeEmbedder(16)) as memory:
        yield memory


@pytest.fixture
def repositories(tmp_path: Path) -> dict[str, Path]:
    """Return the folders of two sessions: a worktree of a repository, and another repository."""
    first = make_repository(tmp_path / "first", "git@github.com:owner/first.git")
    git(first, "worktree", "add", "-q", "-b", "topic", str(tmp_path / "linked"))
    return {
        "one": tmp_path / "linked",
        "two": make_repository(tmp_path / "second", "https://github.com/owner/second"),
    }


def write(root: Path, kind: str, repositories: dict[str, Path]) -> Path:
    for session, folder in repositories.items():
        WRITERS[kind](root, session, folder)
    return root


@EVERY_CLIENT
def test_sessions_are_imported_into_the_projects_of_their_folders(
    memory: Memory, tmp_path: Path, repositories: dict[str, Path], kind: str
) -> None:
    root = write(tmp_path / "transcripts", kind, repositories)
    source = ImportSource(str(root))
    assert recognise_source(source)[0] == kind
    would = memory.admin.import_from(root, user_id="alex", dry_run=True)
    assert list(memory.export(sessions=False)) == []
    report = memory.admin.import_from(root, user_id="alex")
    assert (report.turns, report.added, report.sessions) == (would.turns, would.added, would.sessions) == (4, 4, 2)
    assert report.redacted == would.redacted == 2
    stored: list[dict[str, Any]] = list(memory.export(sessions=False))
    by_session = {(line["session_id"], line["project_id"]) for line in stored}
    assert by_session == {("one", "github.com/owner/first"), ("two", "github.com/owner/second")}
    assert {line["memory"] for line in stored if line["detail"]["role"] == "assistant"} == {ANSWER}
    text = json.dumps(stored)
    assert SECRET not in text
    assert TOOL_OUTPUT[:50] not in text
    if kind in ("claude-code", "codex"):
        assert {line["metadata"]["branch"] for line in stored} == {"topic"}
    again = memory.admin.import_from(root, user_id="alex")
    assert (again.added, again.present) == (0, 4)


@EVERY_CLIENT
def test_turns_that_hooks_stored_are_not_imported_again(
    tmp_path: Path, repositories: dict[str, Path], kind: str
) -> None:
    folder = repositories["one"]
    root = write(tmp_path / "transcripts", kind, {"one": folder})
    with served(tmp_path / "home", memory_timeout_s=30) as client:
        url = f"http://{client.base_url.netloc.decode()}/recollect/v1/hooks/{kind}"
        for name in ("recall", "keep"):
            payload = event(kind, name, folder, "one", prompt=PROMPT, answer=ANSWER)
            answer = httpx.post(f"{url}/{name}", json=payload, timeout=60)
            assert answer.status_code == 200, answer.text
        # The prompt is stored while the client continues.
        place = {"user_id": "default", "project_id": "github.com/owner/first", "session_id": "one"}
        with as_user(client, "default") as own:
            wait_until(lambda: len(own.get("/turns", params=place).json()["results"]) == 2)
    with Memory(home=tmp_path / "home") as memory:
        report = memory.admin.import_from(root, user_id="default")
    assert (report.added, report.present) == (0, 2)


def test_a_session_without_a_recorded_folder_is_left_out(memory: Memory, tmp_path: Path) -> None:
    for kind in ("gemini", "cursor"):
        root = write(tmp_path / kind, kind, {"one": tmp_path / "gone-away"})
        (root / "one" / ".project_root").unlink(missing_ok=True)
        report = memory.admin.import_from(root, user_id="alex", kind=kind)
        assert report.turns == 0
        assert report.left["a session without a recorded working folder"] == 1


def test_the_command_finds_the_transcripts_of_the_client(
    tmp_path: Path, repositories: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    write(tmp_path / ".claude" / "projects", "claude-code", repositories)
    cli = Cli(tmp_path / "home")
    assert "Would add 4" in cli("import", "--from", "claude-code", "--dry-run").stdout
    output = cli("import", "--from", "claude-code").stdout
    assert "Added 4" in output
    assert "of user default" in output
    assert "sessions of subagents are not imported" in output
    assert cli.json("search", "How do we deploy?", "--project", "github.com/owner/first")["results"]
