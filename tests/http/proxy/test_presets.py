"""Presets of the proxy: a drop-in for the Markdown memory proxy, and for the memory of the semantic router."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from recollect.cli.commands.serve import proxy_settings
from recollect.config.settings import load
from recollect.model.ids import new_id
from recollect.testing.scripted_llm import ScriptedLLM
from tests.support.proxy_server import BUDGET, QUESTION, Answered, ServedProxy, chat, served


@pytest.fixture(scope="module")
def llm() -> Iterator[ScriptedLLM]:
    with ScriptedLLM() as server:
        yield server


@pytest.fixture(scope="module")
def server(llm: ScriptedLLM, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedProxy]:
    with served(tmp_path_factory.mktemp("home"), llm.base_url, preset="markdown-proxy") as running:
        yield running


@pytest.fixture
def post(server: ServedProxy) -> Callable[..., Answered]:
    """Chats of a user with no memories."""
    user = new_id()
    return lambda text, **fields: server.post(chat(text, user=user, **fields))


def last_message(llm: ScriptedLLM) -> str:
    request: Any = llm.requests[-1].json
    return str(request["messages"][-1]["content"])


def test_the_markdown_proxy_answers_on_its_port_with_its_health(server: ServedProxy, llm: ScriptedLLM) -> None:
    assert load({"preset": "markdown-proxy"}, environ={}).settings.port == 8100
    report = httpx.get(server.url.removesuffix("/v1") + "/health", timeout=60).json()
    assert report["status"] == "ok"
    assert report["openai_base_url"] == llm.base_url
    assert report["default_top_k"] == "5"
    assert "memory_store" in report


def test_memories_precede_the_question_and_every_answer_lists_its_hits(
    post: Callable[..., Answered], llm: ScriptedLLM
) -> None:
    first = post(BUDGET, memory_id="trip")
    assert first.json["memory_hits"] == []
    answer = post(QUESTION, memory_id="trip")
    hit = answer.json["memory_hits"][0]
    assert {"role", "content", "created_at", "score"} <= hit.keys()
    assert "$10,000" in hit["content"]
    request = last_message(llm)
    assert request.startswith("Long-term memory (most relevant first):\n")
    assert request.endswith(f"Current message: {QUESTION}")
    sent: Any = llm.requests[-1].json
    assert not [name for name in sent if name.startswith("memory")]


def test_conversations_share_global_memories_only(post: Callable[..., Answered], llm: ScriptedLLM) -> None:
    post(BUDGET, memory_id="trip")
    other = post(QUESTION, memory_id="work")
    assert other.json["memory_hits"] == []
    post("My dog is called Rex", memory_id="global")
    existing = post("What is my dog called?", memory_id="work")
    assert any("Rex" in hit["content"] for hit in existing.json["memory_hits"])


def test_top_k_zero_forwards_the_request_unchanged_and_stores_the_turn(
    post: Callable[..., Answered], llm: ScriptedLLM
) -> None:
    post(BUDGET)
    answer = post(QUESTION, memory_top_k=0)
    assert last_message(llm) == QUESTION
    assert answer.json["memory_hits"] == []
    assert answer.headers["x-memory-turn"]


def test_recency_weight_and_threshold_apply_per_request(post: Callable[..., Answered]) -> None:
    post(BUDGET)
    strict = post(QUESTION, memory_score_threshold=1.0)
    assert strict.json["memory_hits"] == []
    [old, new] = (
        post(QUESTION, memory_recency_weight=weight, memory_top_k=1).json["memory_hits"][0]["score"]
        for weight in (0.0, 1.0)
    )
    # The memory was stored a moment ago.
    assert new > old
    assert new == pytest.approx(1.0, abs=0.01)


def test_the_options_of_the_markdown_proxy_set_settings() -> None:
    options = {
        "memory_path": "./memory_db",
        "openai_base_url": "http://localhost:11434/v1",
        "openai_api_key": "k",
        "embedding_base_url": "http://localhost:9/v1",
        "embedding_model": "nomic",
        "default_top_k": 7,
        "max_entries": 9,
        "mmr_lambda": 0.5,
        "recency_weight": 0.1,
        "score_threshold": 0.2,
        "summarization": False,
        "log_level": "warning",
    }
    results = load({**proxy_settings(options), "preset": "markdown-proxy"}, environ={}).settings
    assert results.home == Path("./memory_db")
    assert (results.upstream_url, results.llm_url) == ("http://localhost:11434/v1", "http://localhost:11434/v1")
    assert (results.embedder_url, results.embedder) == ("http://localhost:9/v1", "openai:nomic")
    assert results.upstream_api_key.get_secret_value() == "k"
    assert (results.search_limit, results.quota_project, results.diversity) == (7, 9, 0.5)
    assert (results.recency_weight, results.search_min_score) == (0.1, 0.2)
    assert (results.learn, results.summary_every, results.log_level) == ("off", 0, "warning")
    assert proxy_settings({"git_versioning": False}) == {"mirror_git": False}


def test_the_semantic_router_preset_inserts_memories_into_the_system_message(
    tmp_path: Path, llm: ScriptedLLM
) -> None:
    context = {"memory_config": {"enabled": True, "auto_store": True}, "memory_context": {"user_id": "user_456"}}
    with served(tmp_path, llm.base_url, preset="semantic-router") as server:
        server.post(chat(BUDGET, **context))
        server.post(chat(QUESTION, **context))
        [system, question] = (llm.requests[-1].json or {})["messages"]
        assert system["role"] == "system"
        assert system["content"].startswith("## User's Relevant Context\n\n- ")
        assert "$10,000" in system["content"]
        assert question == {"role": "user", "content": QUESTION}
        server.post(chat(QUESTION, memory_context={"user_id": "someone else"}))
        assert "$10,000" not in json.dumps(llm.requests[-1].json)
