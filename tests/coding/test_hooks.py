"""Hooks of each coding agent against a real server: what is said in one session is in the context of the next."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.support.api_server import as_user, served
from tests.support.coding_agents import CLIENTS, HookRunner, context_of, event
from tests.support.git_repositories import git, make_repository
from tests.support.remember_samples import wait_until

FACT = "The staging database of this service is called quokka-stage and runs on port 6543."
QUESTION = "Which port does the staging database run on?"
ANSWER = "I noted the name and the port of the staging database."
PATIENT = {"memory_timeout_s": 30, "recall_timeout_s": 60}


class Agents:
    """A server with two repositories, and the hooks of all clients."""

    def __init__(self, client: httpx.Client, folder: Path) -> None:
        self.client = client
        self.first = make_repository(folder / "first", "git@github.com:owner/first.git")
        self.second = make_repository(folder / "second", "https://github.com/owner/second")
        self.url = f"http://{client.base_url.netloc.decode()}"
        self.run = HookRunner(self.url, folder)

    def hook(self, client: str, name: str, folder: Path, session: str, *, prompt: str = "", answer: str = "") -> str:
        """Run a hook; return the context for the model."""
        payload = event(client, name, folder, session, prompt=prompt, answer=answer)
        done = self.run(client, name, payload)
        assert done.stderr == ""
        return context_of(client, done.answer)

    def exchange(self, client: str, folder: Path, session: str, prompt: str, answer: str) -> None:
        """Say something and get an answer, as a client does it; wait until both are stored."""
        self.hook(client, "recall", folder, session, prompt=prompt)
        self.hook(client, "keep", folder, session, prompt=prompt, answer=answer)
        wait_until(lambda: {"user", "assistant"} <= {turn["role"] for turn in self.turns(session)})

    def turns(self, session: str, project: str = "github.com/owner/first") -> list[dict[str, object]]:
        answer = self.client.get("/turns", params={"session_id": session, "project_id": project})
        results: list[dict[str, object]] = answer.json()["results"]
        return results


@pytest.fixture
def agents(tmp_path: Path) -> Iterator[Agents]:
    with served(tmp_path / "home", **PATIENT) as alex, as_user(alex, "default") as client:
        yield Agents(client, tmp_path)


@pytest.mark.parametrize("client", CLIENTS)
def test_a_fact_of_one_session_is_in_the_context_of_the_next_in_its_repository_only(
    agents: Agents, client: str
) -> None:
    assert agents.hook(client, "recall", agents.first, "monday", prompt=FACT) == ""
    agents.exchange(client, agents.first, "monday", FACT, ANSWER)
    assert "6543" in agents.hook(client, "recall", agents.first, "tuesday", prompt=QUESTION)
    assert agents.hook(client, "recall", agents.second, "wednesday", prompt=QUESTION) == ""


@pytest.mark.parametrize("client", CLIENTS)
def test_a_session_starts_with_a_brief_of_its_repository(agents: Agents, client: str) -> None:
    agents.exchange(client, agents.first, "monday", FACT, ANSWER)
    ended = agents.client.post(
        "/session/end", params={"session_id": "monday", "project_id": "github.com/owner/first", "wait_s": 300}
    )
    assert ended.status_code == 202
    assert "6543" in agents.hook(client, "brief", agents.first, "tuesday")
    assert agents.hook(client, "brief", agents.second, "tuesday") == ""


def test_a_brief_names_the_branch_of_another_one_and_no_episode_that_only_quotes(agents: Agents) -> None:
    agents.exchange("codex", agents.first, "monday", FACT, ANSWER)
    agents.client.post(
        "/session/end", params={"session_id": "monday", "project_id": "github.com/owner/first", "wait_s": 300}
    )
    brief = agents.hook("codex", "brief", agents.first, "tuesday")
    assert brief.count("6543") == 1
    assert "[branch" not in brief
    git(agents.first, "checkout", "-q", "-b", "topic")
    assert "port 6543 [branch main]" in agents.hook("codex", "brief", agents.first, "wednesday")


def test_an_outcome_is_recalled_once_not_also_as_the_answer_that_it_was_learned_from(agents: Agents) -> None:
    prompt = "How should we name the new table?"
    answer = "We decided to name the table order_events, because orders is already used by the legacy schema."
    agents.exchange("claude-code", agents.first, "monday", prompt, answer)
    agents.client.post(
        "/session/end", params={"session_id": "monday", "project_id": "github.com/owner/first", "wait_s": 300}
    )
    question = "What is the name of the table for order events?"
    context = agents.hook("claude-code", "recall", agents.first, "tuesday", prompt=question)
    assert context.count("order_events") == 1
    assert context.count(prompt) <= 1


def test_all_agents_and_worktrees_share_the_memory_of_a_repository(agents: Agents, tmp_path: Path) -> None:
    git(agents.first, "worktree", "add", "-q", "-b", "topic", str(tmp_path / "linked"))
    agents.exchange("claude-code", tmp_path / "linked", "monday", FACT, ANSWER)
    for client in CLIENTS:
        assert "6543" in agents.hook(client, "recall", agents.first, f"tuesday {client}", prompt=QUESTION)
    stored = agents.client.get("/memories", params={"turns": True, "project_id": "github.com/owner/first"}).json()
    turns = [each for each in stored["results"] if each["category"] == "turn"]
    branches = {each["session_id"]: each["metadata"]["branch"] for each in turns}
    assert branches["monday"] == "topic"
    assert branches["tuesday codex"] == "main"


def test_injected_memories_are_never_stored(agents: Agents) -> None:
    agents.exchange("gemini", agents.first, "monday", FACT, ANSWER)
    context = agents.hook("gemini", "recall", agents.first, "tuesday", prompt=QUESTION)
    agents.exchange("gemini", agents.first, "tuesday", f"{QUESTION}\n\n{context}", f"{context}\nIt is in the notes.")
    contents = [str(turn["content"]) for turn in agents.turns("tuesday")]
    assert contents == [QUESTION, "It is in the notes."]


def test_an_exchange_that_is_sent_twice_is_stored_once(agents: Agents) -> None:
    agents.exchange("codex", agents.first, "monday", FACT, ANSWER)
    agents.exchange("codex", agents.first, "monday", FACT, ANSWER)
    assert [turn["content"] for turn in agents.turns("monday")] == [FACT, ANSWER]


def test_additions_of_the_client_commands_and_the_middle_of_long_texts_are_not_stored(agents: Agents) -> None:
    reminder = "<system-reminder>Tools changed.</system-reminder>"
    agents.exchange(
        "claude-code", agents.first, "monday", f"{reminder}{FACT}", f"Done.\n{'log line ' * 50_000}\nBye."
    )
    agents.hook("claude-code", "recall", agents.first, "monday", prompt="/compact now")
    agents.hook("claude-code", "keep", agents.first, "monday", answer="Later.")
    contents = [str(turn["content"]) for turn in agents.turns("monday")]
    assert contents[0] == FACT
    assert contents[1].startswith("Done.")
    assert contents[1].endswith("Bye.")
    assert len(contents[1]) < 20_000
    assert contents[2:] == ["Later."]


@pytest.mark.parametrize("client", CLIENTS)
def test_before_compaction_the_session_is_saved_with_the_answer_in_the_transcript(
    agents: Agents, tmp_path: Path, client: str
) -> None:
    transcript = tmp_path / "transcript.jsonl"
    lines = {
        "claude-code": [
            {"type": "user", "message": {"role": "user", "content": FACT}},
            {"type": "assistant", "message": {"role": "assistant", "content": [{"type": "text", "text": ANSWER}]}},
            {"type": "user", "message": {"role": "user", "content": [{"type": "tool_result", "content": "x" * 999}]}},
        ],
        "codex": [
            {"type": "response_item", "payload": {"type": "message", "role": "user", "content": [
                {"type": "input_text", "text": FACT}]}},
            {"type": "response_item", "payload": {"type": "message", "role": "assistant", "content": [
                {"type": "output_text", "text": ANSWER}]}},
            {"type": "response_item", "payload": {"type": "function_call_output", "output": "x" * 999}},
        ],
        "gemini": [
            {"id": "1", "type": "user", "content": [{"text": FACT}]},
            {"id": "2", "type": "gemini", "content": ANSWER, "toolCalls": [{"name": "shell", "result": "x" * 999}]},
        ],
        "cursor": [
            {"role": "user", "message": {"content": [{"type": "text", "text": f"<user_query>{FACT}</user_query>"}]}},
            {"role": "assistant", "message": {"content": [{"type": "text", "text": ANSWER}]}},
        ],
    }[client]  # fmt: skip
    transcript.write_text("".join(json.dumps(line) + "\n" for line in lines))
    agents.hook(client, "recall", agents.first, "monday", prompt=FACT)
    payload = event(client, "save", agents.first, "monday") | {"transcript_path": str(transcript)}
    assert context_of(client, agents.run(client, "save", payload).answer) == ""
    wait_until(lambda: {turn["content"] for turn in agents.turns("monday")} == {FACT, ANSWER})

    def is_closed() -> bool:
        found = agents.client.get("/session", params={"session_id": "monday", "project_id": "github.com/owner/first"})
        return bool(found.status_code == 200 and found.json()["closed_at"])

    wait_until(is_closed)


def test_a_hook_by_http_resolves_the_same_project_as_the_command(agents: Agents) -> None:
    agents.exchange("claude-code", agents.first, "monday", FACT, ANSWER)
    payload = event("claude-code", "recall", agents.first / ".git", "tuesday", prompt=QUESTION)
    answer = httpx.post(f"{agents.url}/recollect/v1/hooks/claude-code/recall", json=payload, timeout=60)
    assert answer.status_code == 200
    assert "6543" in context_of("claude-code", answer.json())
    other = httpx.post(
        f"{agents.url}/recollect/v1/hooks/claude-code/recall",
        json=payload,
        # As Claude Code fills in the variable RECOLLECT_PROJECT.
        headers={"X-Memory-Project": "another"},
        timeout=60,
    )
    assert context_of("claude-code", other.json()) == ""


def test_the_environment_names_the_project(agents: Agents, tmp_path: Path) -> None:
    agents.exchange("claude-code", agents.first, "monday", FACT, ANSWER)
    runner = HookRunner(agents.url, tmp_path, {**agents.run.variables, "RECOLLECT_PROJECT": "github.com/owner/first"})
    payload = event("claude-code", "recall", agents.second, "tuesday", prompt=QUESTION)
    assert "6543" in context_of("claude-code", runner("claude-code", "recall", payload).answer)


def test_a_resumed_session_has_its_context_already(agents: Agents) -> None:
    agents.exchange("claude-code", agents.first, "monday", FACT, ANSWER)
    payload = event("claude-code", "brief", agents.first, "monday") | {"source": "resume"}
    assert agents.run("claude-code", "brief", payload).answer == {}
