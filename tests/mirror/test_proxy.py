"""The markdown-proxy preset end to end: chats through the proxy, and edits of the files."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from recollect.testing.scripted_llm import RecordedRequest, ScriptedLLM
from tests.support.mirror_samples import body, front_matter
from tests.support.proxy_server import ServedProxy, chat, served
from tests.support.remember_samples import EXTRACT, NOTHING, SUMMARY, claim, learns

BIKE = "User's bike is a red Cargo bike"
SUMMED = "The user talked about a red Cargo bike that they own."


def asks_to_chat(request: RecordedRequest) -> bool:
    return not any(prompt in request.text for prompt in (EXTRACT, SUMMARY, "Statements were just learned"))


@pytest.fixture
def proxy(tmp_path: Path, llm: ScriptedLLM) -> Iterator[ServedProxy]:
    llm.default = NOTHING
    llm.when(asks_to_chat).reply("Nice.")
    llm.when(SUMMARY).reply(SUMMED)
    learns(llm, "red Cargo bike.", claim(BIKE))
    options = {
        "preset": "markdown-proxy",
        "llm": "scripted",
        "llm_url": llm.base_url,
        "learn_wait_s": 0,
        "worker": True,
        "recall_timeout_s": 60,
    }
    with served(tmp_path, llm.base_url, **options) as server:
        yield server


def wait(condition: Callable[[], Any]) -> Any:
    """Wait until a condition is true, and return its value."""
    deadline = time.monotonic() + 60
    while not (value := condition()) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert value, "the condition was not true within 60 s"
    return value


def facts(root: Path, conversation: str = "default") -> dict[str, Path]:
    return {body(path): path for path in root.glob(f"entries/{conversation}/facts/*.md")}


def injected(llm: ScriptedLLM) -> str:
    """Return the last message of the last chat request."""
    request: Any = [each for each in llm.calls("chat") if asks_to_chat(each)][-1].json
    return str(request["messages"][-1]["content"])


def test_a_chat_leaves_turns_facts_and_a_summary_as_files(proxy: ServedProxy, tmp_path: Path) -> None:
    answer = proxy.post(chat("My bike is a red Cargo bike."))
    assert (answer.status, answer.json["memory_hits"]) == (200, [])
    fact = wait(lambda: facts(tmp_path).get(BIKE))
    summary = wait(lambda: list(tmp_path.glob("entries/default/summaries/summary.md")))[0]
    [question] = tmp_path.glob("entries/default/turns/user/*.md")
    [reply] = tmp_path.glob("entries/default/turns/assistant/*.md")
    assert (body(question), body(reply)) == ("My bike is a red Cargo bike.", "Nice.")
    assert body(summary) == SUMMED
    report = front_matter(summary)
    assert (report["role"], report["summary_kind"], report["conversation_id"]) == ("summary", "summary", "default")
    report = front_matter(fact)
    assert (report["role"], report["conversation_id"], report["source_id"]) == (
        "memory",
        "default",
        front_matter(question)["id"],
    )
    assert fact.name.endswith(f"__{report['id']}.md")
    snapshot = wait(lambda: _snapshot(tmp_path, 4))
    assert {each["content"] for each in snapshot} == {body(question), body(reply), BIKE, SUMMED}
    log = ["git", "-C", str(tmp_path), "log", "--format=%s"]
    wait(lambda: "turn" in subprocess.run(log, capture_output=True, text=True, check=True).stdout)


def _snapshot(root: Path, count: int) -> list[dict[str, Any]]:
    path = root / "memory_index.json"
    results: list[dict[str, Any]] = json.loads(path.read_text()) if path.exists() else []
    return results if len(results) == count else []


def test_a_corrected_fact_file_is_injected_into_the_next_chat(
    proxy: ServedProxy, llm: ScriptedLLM, tmp_path: Path
) -> None:
    proxy.post(chat("My bike is a red Cargo bike."))
    path = wait(lambda: facts(tmp_path).get(BIKE))
    wait(lambda: list(tmp_path.glob("entries/default/summaries/summary.md")))
    text = path.read_text().replace("red Cargo", "green Cargo")
    path.write_text(text)
    wait(lambda: front_matter(path).get("version") == 2)
    proxy.post(chat("What colour is my Cargo bike?"))
    assert "User's bike is a green Cargo bike" in injected(llm)


def test_deleting_a_fact_file_also_forgets_its_source_turn(
    proxy: ServedProxy, llm: ScriptedLLM, tmp_path: Path
) -> None:
    proxy.post(chat("My bike is a red Cargo bike."))
    path = wait(lambda: facts(tmp_path).get(BIKE))
    wait(lambda: list(tmp_path.glob("entries/default/summaries/summary.md")))
    path.unlink()
    wait(lambda: list(tmp_path.glob("entries/deleted/default/facts/*.md")))
    wait(lambda: list(tmp_path.glob("entries/deleted/default/turns/user/*.md")))
    answer = proxy.post(chat("What colour is my Cargo bike?"))
    assert not any("Cargo bike" in hit["content"] for hit in answer.json["memory_hits"] if hit["role"] == "memory")
    assert BIKE not in injected(llm)


def test_a_rewritten_summary_file_is_injected(proxy: ServedProxy, llm: ScriptedLLM, tmp_path: Path) -> None:
    proxy.post(chat("My bike is a red Cargo bike."))
    [summary] = wait(lambda: list(tmp_path.glob("entries/default/summaries/summary.md")))
    summary.write_text(summary.read_text().replace(SUMMED, "The user collects bicycles of all kinds."))
    wait(lambda: front_matter(summary).get("version") == 2)
    proxy.post(chat("What do you know of me?"))
    assert "collects bicycles of all kinds" in injected(llm)


def test_conversations_have_separate_folders_and_all_see_global(
    proxy: ServedProxy, llm: ScriptedLLM, tmp_path: Path
) -> None:
    proxy.post(chat("My budget is $10,000", memory_id="team/a"))
    proxy.post(chat("My budget is $20,000", memory_id="team_a"))
    wait(lambda: len(list(tmp_path.glob("entries/team_a*/turns/user/*.md"))) == 2)
    assert len(list(tmp_path.glob("entries/team_a*"))) == 2
    note = tmp_path / "entries/global/facts/dog.md"
    note.parent.mkdir(parents=True)
    note.write_text("The user's dog is called Rex")
    wait(lambda: note.read_text().startswith("---"))
    proxy.post(chat("What is my dog called?", memory_id="team/a"))
    assert "Rex" in injected(llm)
