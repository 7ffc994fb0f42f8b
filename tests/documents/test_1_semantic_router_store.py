"""The design of the preset semantic-router: its memory API, its config.yaml and Milvus, on a server of its own."""

from __future__ import annotations

import asyncio
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from recollect.config.name_mapping import NAMES
from recollect.config.settings import Settings, load
from recollect.errors import InvalidSettings
from recollect.index.milvus import MilvusOptions, MilvusVectorStore
from recollect.index.vector_store import hash_user
from recollect.models.static_embedder import StaticEmbedder
from recollect.testing.scripted_llm import ScriptedLLM
from tests.support.forked import run_forked
from tests.support.milvus_server import running_milvus
from tests.support.paths import ROOT
from tests.support.recollect_server import RecollectServer, environment
from tests.support.redis_server import running_redis
from tests.support.remember_samples import EXTRACT, asks_about, llm_requests

BUDGET = "User's budget for Hawaii is $10,000"
DEPLOY = "To deploy payment-service: run npm build, then docker push"
# As in the design, section 10.
CONFIG = """\
# config.yaml
memory:
  enabled: true
  store_backend: "milvus"  # or "memory" for development

  milvus:
    address: "milvus:19530"
    collection: "agentic_memory"
    ef_construction: 256
    m: 16
    ef: 64

  # Retrieval settings
  default_retrieval_limit: 5
  default_similarity_threshold: 0.6

  # Extraction settings (for saving)
  extraction:
    enabled: true
    batch_size: 10
    llm_endpoint: "http://qwen:8000"
"""


def wait_until(is_true: Callable[[], bool], *, within_s: float = 60) -> None:
    deadline = time.monotonic() + within_s
    while not is_true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RecollectServer]:
    """The server of the page, with the config.yaml of the design and Milvus as a file beside the ledger."""
    home = tmp_path_factory.mktemp("router") / "home"
    home.mkdir()
    text = CONFIG.replace("milvus:19530", str(home / "milvus.db")).replace(
        '    llm_endpoint: "http://qwen:8000"\n', ""
    )
    (home / "config.yaml").write_text(text)
    with RecollectServer(home, "--preset", "semantic-router") as running:
        running.home = home  # type: ignore[attr-defined]
        yield running


@pytest.fixture(scope="module")
def home(server: RecollectServer) -> Path:
    return Path(server.home)  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def client(server: RecollectServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=60) as client:
        yield client


def store(client: httpx.Client, content: str, user: str, **fields: Any) -> dict[str, Any]:
    answer = client.post("/v1/memory", json={"content": content, "user_id": user, **fields})
    assert answer.status_code == 201, answer.text
    memory: dict[str, Any] = answer.json()
    return memory


def listed(client: httpx.Client, user: str) -> list[str]:
    answer = client.get("/v1/memory", params={"user_id": user}).json()
    return [each["content"] for each in answer["memories"]]


def run_cli(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run_forked(["--preset", "semantic-router", *arguments], environment(home))


# Store and Retrieve


def test_a_stored_memory_has_the_fields_of_the_design(client: httpx.Client) -> None:
    memory = store(client, BUDGET, "fields")
    assert list(memory) == ["id", "type", "content", "user_id", "created_at", "access_count", "importance"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", memory.pop("created_at"))
    assert memory.pop("id").startswith("mem_")
    assert memory == {
        "type": "semantic", "content": BUDGET, "user_id": "fields", "access_count": 0, "importance": 0.5
    }  # fmt: skip
    full = store(client, DEPLOY, "fields", type="procedural", project_id="pay", source="wiki", importance=0.75)
    assert (full["type"], full["project_id"], full["source"], full["importance"]) == (
        "procedural",
        "pay",
        "wiki",
        0.75,
    )


@pytest.mark.parametrize(
    ("type", "content"),
    [
        ("semantic", BUDGET),
        ("procedural", DEPLOY),
        ("episodic", "On Dec 29 2024, user planned Hawaii vacation with $10K budget"),
        ("reflective", "Previous budget response was incomplete - user prefers detailed breakdowns"),
    ],
)
def test_memories_have_the_types_of_the_design(client: httpx.Client, type: str, content: str) -> None:
    user = f"type-{type}"
    store(client, content, user, type=type)
    [result] = client.post("/v1/memory/search", json={"query": content, "user_id": user}).json()["results"]
    assert result["memory"]["type"] == type
    listed_of_type = client.get("/v1/memory", params={"user_id": user, "type": type}).json()["memories"]
    assert [each["content"] for each in listed_of_type] == [content]


def test_retrieve_takes_a_limit_a_threshold_and_types(client: httpx.Client) -> None:
    def retrieve(**options: Any) -> list[str]:
        query = {"query": "What is the Hawaii budget?", "user_id": "options", **options}
        answer = client.post("/v1/memory/search", json=query)
        return [each["memory"]["content"] for each in answer.json()["results"]]

    store(client, BUDGET, "options")
    store(client, "To raise the Hawaii budget: ask Ann, then Bob", "options", type="procedural")
    store(client, "User's dog is called Rex", "options")
    assert len(retrieve()) == 2
    assert "User's dog is called Rex" not in retrieve()
    assert len(retrieve(limit=1)) == 1
    assert len(retrieve(threshold=0)) == 3
    assert retrieve(types=["procedural"], threshold=0) == ["To raise the Hawaii budget: ask Ann, then Bob"]


def test_memories_with_different_numbers_are_not_merged(client: httpx.Client) -> None:
    first = store(client, "The budget for the Hawaii trip is $10,000", "numbers")
    assert store(client, "The budget for the Hawaii trip is $12,000", "numbers")["id"] != first["id"]
    assert len(listed(client, "numbers")) == 2


def test_a_retrieval_counts_as_access(client: httpx.Client) -> None:
    memory = store(client, BUDGET, "access")
    query = {"query": "What's my budget for the Hawaii trip?", "user_id": "access"}
    assert len(client.post("/v1/memory/search", json=query).json()["results"]) == 1
    wait_until(lambda: bool(client.get(f"/v1/memory/{memory['id']}").json()["access_count"] >= 1))


def test_a_memory_without_a_user_or_with_an_unknown_field_is_an_error_that_names_it(client: httpx.Client) -> None:
    answer = client.post("/v1/memory", json={"content": BUDGET})
    assert (answer.status_code, answer.json()["error"]["code"]) == (401, "MISSING_USER_ID")
    answer = client.post("/v1/memory", json={"content": BUDGET, "user_id": "x", "embeding": [1.0]})
    assert answer.status_code == 400
    assert "embeding" in answer.json()["error"]["message"]


# Forget operations


def test_delete_v1_memory_id_forgets_one_memory(client: httpx.Client) -> None:
    budget, _ = store(client, BUDGET, "delete-one"), store(client, DEPLOY, "delete-one", type="procedural")
    answer = client.delete(f"/v1/memory/{budget['id']}")
    assert (answer.status_code, answer.json()["deleted"]) == (200, 1)
    assert listed(client, "delete-one") == [DEPLOY]
    assert client.delete(f"/v1/memory/{budget['id']}").status_code == 404


def test_delete_v1_memory_user_id_forgets_all_memories_of_a_user(client: httpx.Client) -> None:
    store(client, BUDGET, "delete-user")
    store(client, BUDGET, "delete-user", project_id="project_abc")
    store(client, BUDGET, "delete-nobody")
    assert client.delete("/v1/memory?user_id=delete-user").json()["deleted"] == 2
    assert listed(client, "delete-user") == []
    assert listed(client, "delete-nobody") == [BUDGET]


def test_delete_v1_memory_user_id_and_project_id_forgets_all_memories_of_a_project(client: httpx.Client) -> None:
    store(client, BUDGET, "delete-project")
    store(client, DEPLOY, "delete-project", project_id="project_abc")
    assert client.delete("/v1/memory?user_id=delete-project&project_id=project_abc").json()["deleted"] == 1
    assert listed(client, "delete-project") == [BUDGET]


def test_a_forgotten_memory_can_be_restored_and_an_erased_one_cannot(client: httpx.Client) -> None:
    user = {"X-Memory-User": "gdpr"}
    memory = store(client, BUDGET, "gdpr")
    restore = f"/recollect/v1/memories/{memory['id'].removeprefix('mem_').partition('.')[0]}/restore"
    client.delete(f"/v1/memory/{memory['id']}")
    assert listed(client, "gdpr") == []
    assert client.post(restore, headers=user).status_code == 200
    assert listed(client, "gdpr") == [BUDGET]
    client.post("/recollect/v1/erase", json={"target": "user"}, headers=user).raise_for_status()
    assert client.post(restore, headers=user).status_code == 404
    assert listed(client, "gdpr") == []


# The Store interface by id: Get, Update


def test_an_id_begins_with_mem_and_is_enough_to_get_and_update_a_memory(client: httpx.Client) -> None:
    memory = store(client, BUDGET, "by-id")
    assert memory["id"].startswith("mem_")
    path = f"/v1/memory/{memory['id']}"
    assert client.get(path).json() == memory
    updated = client.put(path, json={"content": "Final Hawaii budget is $12,000"})
    assert (updated.json()["id"], updated.json()["content"]) == (memory["id"], "Final Hawaii budget is $12,000")
    [in_list] = client.get("/v1/memory", params={"user_id": "by-id"}).json()["memories"]
    assert in_list["id"] == memory["id"]


def test_an_id_of_our_own_api_is_accepted_with_the_user(client: httpx.Client) -> None:
    added = client.post("/recollect/v1/memories", json={"content": BUDGET}, headers={"X-Memory-User": "own-id"})
    path = f"/v1/memory/{added.json()['id']}"
    assert client.get(path, params={"user_id": "own-id"}).json()["content"] == BUDGET
    assert client.get(path).json()["error"]["code"] == "MISSING_USER_ID"


def test_memories_are_scoped_per_user_also_by_id(client: httpx.Client) -> None:
    memory = store(client, BUDGET, "victim")
    plain_id = memory["id"].partition(".")[0]
    for id in (memory["id"], plain_id):
        eve = {"X-Memory-User": "eve"}
        assert client.get(f"/v1/memory/{id}", headers=eve).status_code == 404
        assert client.delete(f"/v1/memory/{id}", headers=eve).status_code == 404
        assert client.put(f"/v1/memory/{id}", headers=eve, json={"content": "mine"}).status_code == 404
    assert listed(client, "victim") == [BUDGET]


# TTL and expiration


def test_a_memory_with_a_ttl_is_gone_after_it(client: httpx.Client) -> None:
    memory = store(client, "The code of the gate is blue heron", "ttl", ttl=2)
    assert memory["expires_at"].endswith("Z")
    wait_until(lambda: client.get(f"/v1/memory/{memory['id']}").status_code == 404)
    assert listed(client, "ttl") == []


def test_expires_at_is_stored_shown_changed_and_removed(client: httpx.Client) -> None:
    memory = store(client, BUDGET, "expiry", expires_at="2999-01-01T00:00:00Z")
    path = f"/v1/memory/{memory['id']}"
    assert client.get(path).json()["expires_at"] == "2999-01-01T00:00:00Z"
    assert client.patch(path, json={"ttl": 3600}).json()["expires_at"] < "2999"
    assert "expires_at" not in client.patch(path, json={"expires_at": None}).json()
    assert listed(client, "expiry") == [BUDGET]


def test_an_expiry_in_the_past_hides_a_memory_at_once(client: httpx.Client) -> None:
    memory = store(client, BUDGET, "past")
    client.patch(f"/v1/memory/{memory['id']}", json={"expires_at": "2020-01-01"})
    assert listed(client, "past") == []


def test_a_memory_with_a_ttl_is_not_merged_into_a_permanent_one(client: httpx.Client) -> None:
    permanent = store(client, "The budget for the Hawaii trip is $10,000", "apart")
    temporary = store(client, "The budget for the trip to Hawaii is $10,000", "apart", ttl=3600)
    assert temporary["id"] != permanent["id"]
    assert "expires_at" not in client.get(f"/v1/memory/{permanent['id']}").json()
    assert store(client, "The budget of the Hawaii trip is $10,000", "apart")["id"] == permanent["id"]


@pytest.mark.parametrize("fields", [{"ttl": 0}, {"ttl": "1h"}, {"ttl": 1, "expires_at": "2999-01-01"}])
def test_a_ttl_that_means_nothing_is_an_error(client: httpx.Client, fields: dict[str, Any]) -> None:
    answer = client.post("/v1/memory", json={"content": BUDGET, "user_id": "bad-ttl", **fields})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "INVALID_TTL")


# Configuration


def load_config(folder: Path, text: str) -> Settings:
    (folder / "config.yaml").write_text(text)
    return load({"home": folder, "preset": "semantic-router"}, environ={}).settings


def test_the_config_yaml_of_the_design_is_accepted(tmp_path: Path) -> None:
    settings = load_config(tmp_path, CONFIG)
    assert (settings.index, settings.milvus_address, settings.milvus_collection) == (
        "milvus", "milvus:19530", "agentic_memory"
    )  # fmt: skip
    assert (settings.milvus_ef_construction, settings.milvus_m, settings.milvus_ef) == (256, 16, 64)
    assert (settings.search_limit, settings.search_min_score) == (5, 0.6)
    assert (settings.learn, settings.learn_every) == ("auto", 10)
    assert (settings.llm_url, settings.llm) == ("http://qwen:8000/v1", "qwen3")


def test_each_key_of_the_config_yaml_has_an_effect(tmp_path: Path) -> None:
    usual = load_config(tmp_path, CONFIG)
    for before, after, changed in (
        ("  enabled: true\n  store", "  enabled: false\n  store", {"chat_memory": False}),
        ('"milvus"  #', '"memory"  #', {"index": "exact", "database": "memory:"}),
        ("milvus:19530", "other:19530", {"milvus_address": "other:19530"}),
        ("agentic_memory", "other", {"milvus_collection": "other"}),
        ("ef_construction: 256", "ef_construction: 128", {"milvus_ef_construction": 128}),
        (" m: 16", " m: 32", {"milvus_m": 32}),
        (" ef: 64", " ef: 128", {"milvus_ef": 128}),
        ("limit: 5", "limit: 9", {"search_limit": 9}),
        ("0.6", "0.4", {"search_min_score": 0.4}),
        ("    enabled: true", "    enabled: false", {"learn": "off"}),
        ("batch_size: 10", "batch_size: 4", {"learn_every": 4}),
        ("qwen:8000", "other:8000/v1/", {"llm_url": "http://other:8000/v1"}),
    ):
        assert before in CONFIG
        settings = load_config(tmp_path, CONFIG.replace(before, after))
        assert settings == usual.model_copy(update=changed)


def test_an_unknown_key_of_the_config_yaml_is_reported(tmp_path: Path) -> None:
    with pytest.raises(InvalidSettings, match=r"no setting 'memory\.milvus\.nlist'"):
        load_config(tmp_path, CONFIG.replace("ef: 64", "nlist: 64"))


def test_the_page_names_every_key_of_the_config_yaml() -> None:
    page = (ROOT / "docs" / "documents" / "semantic-router.md").read_text(encoding="utf-8")
    assert [name for name in NAMES["semantic-router"] if f"`{name}`" not in page] == []


def test_with_enabled_false_chats_are_forwarded_without_memory(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "config.yaml").write_text("memory:\n  enabled: false\n")
    chat = {
        "model": "scripted",
        "messages": [{"role": "user", "content": "What's my budget for the Hawaii trip?"}],
        "memory_config": {"enabled": True, "auto_store": True},
        "memory_context": {"user_id": "off"},
    }
    with (
        ScriptedLLM() as llm,
        RecollectServer(home, "--preset", "semantic-router", "--upstream", llm.base_url) as running,
        httpx.Client(base_url=running.url, timeout=60) as client,
    ):
        store(client, BUDGET, "off")
        answer = client.post("/v1/chat/completions", json=chat)
        assert (answer.status_code, answer.headers["x-memory-status"]) == (200, "off")
        [request] = [each for each in llm.requests if each.kind == "chat"]
    assert request.json["messages"] == chat["messages"]


@pytest.fixture(scope="module")
def llm() -> Iterator[ScriptedLLM]:
    with ScriptedLLM(models=("qwen3",)) as server:
        server.default = lambda request: "[]" if EXTRACT in request.text else "Noted."
        yield server


@pytest.fixture(scope="module")
def development(llm: ScriptedLLM, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A server with the backend "memory", other values of the config.yaml, and names of our own in the same file."""
    home = tmp_path_factory.mktemp("development") / "home"
    home.mkdir()
    text = CONFIG.replace('"milvus"  #', '"memory"  #').replace("limit: 5", "limit: 2").replace("0.6", "0.5")
    text = text.replace("batch_size: 10", "batch_size: 1").replace(
        "http://qwen:8000", llm.base_url.removesuffix("/v1")
    )
    (home / "config.yaml").write_text(f"{text}rewrite: hyde\nquota_user: 3\nquota_order: importance\n")
    # More time for a loaded machine.
    times = {"RECOLLECT_MEMORY_TIMEOUT_S": "30", "RECOLLECT_REWRITE_TIMEOUT_S": "60", "RECOLLECT_LEARN_WAIT_S": "0"}
    with (
        RecollectServer(home, "--preset", "semantic-router", "--upstream", llm.base_url, **times) as running,
        httpx.Client(base_url=running.url, timeout=60) as client,
    ):
        yield client
    # Nothing was stored in a file.
    assert not [path for path in home.rglob("*") if path.suffix in (".db", ".sqlite")]


def test_the_backend_memory_stores_no_file_and_has_the_same_operations(development: httpx.Client) -> None:
    memory = store(development, BUDGET, "dev")
    store(development, "User's hotel budget for Hawaii is $4,000", "dev")
    store(development, "User's food budget for Hawaii is $1,000", "dev")
    query = {"query": "What's my budget for the Hawaii trip?", "user_id": "dev"}
    # default_retrieval_limit: 2
    assert len(development.post("/v1/memory/search", json=query).json()["results"]) == 2
    assert development.delete(f"/v1/memory/{memory['id']}").json()["deleted"] == 1
    assert len(listed(development, "dev")) == 2


def test_extraction_uses_the_llm_endpoint_after_each_batch(development: httpx.Client, llm: ScriptedLLM) -> None:
    llm.when(asks_about("Hawaii trip is $10,000")).reply_json([{"type": "semantic", "content": BUDGET}])
    chat = {
        "model": "other",
        "messages": [{"role": "user", "content": "My budget for the Hawaii trip is $10,000"}],
        "memory_config": {"enabled": True, "auto_store": True},
        "memory_context": {"user_id": "batch"},
    }
    development.post("/v1/chat/completions", json=chat, headers={"X-Memory-Session": "march"})
    wait_until(lambda: listed(development, "batch") == [BUDGET])
    [request] = [each for each in llm_requests(llm, EXTRACT) if "Hawaii trip is $10,000" in each.text]
    assert request.json["model"] == "qwen3"


def test_hyde_searches_for_an_imagined_answer(development: httpx.Client, llm: ScriptedLLM) -> None:
    store(development, "User's favourite tea is Darjeeling", "hyde")

    def recall() -> list[str]:
        body = {"messages": [{"role": "user", "content": "What should be in my cup?"}], "min_score": 0.2}
        answer = development.post("/recollect/v1/recall", json=body, headers={"X-Memory-User": "hyde"}).json()
        return [each["memory"] for each in answer["results"]]

    rule = llm.when("Write one such statement that would answer the question")
    rule.reply("")
    assert recall() == []
    rule.reply("User's favourite tea is Assam")
    wait_until(lambda: recall() == ["User's favourite tea is Darjeeling"])
    rule.remove()


def test_a_quota_limits_the_memories_of_a_user(development: httpx.Client) -> None:
    for number in range(1, 6):
        store(development, f"Invoice {number} was paid", "quota", importance=number / 10)
    store(development, "Invoice 6 was paid", "another", importance=0.1)
    assert sorted(listed(development, "quota")) == [f"Invoice {number} was paid" for number in (3, 4, 5)]
    assert listed(development, "another") == ["Invoice 6 was paid"]


def test_graph_relations_connect_names_and_memories(development: httpx.Client) -> None:
    """Section 12: relationships between memories, for questions that need two steps."""
    store(development, "The trip to Hawaii is planned with Sarah", "graph")
    store(development, "Sarah lives in Denver", "graph")
    store(development, "Sarah lives in Oslo", "another-graph")
    answer = development.get(
        "/recollect/v1/graph", params={"around": "Hawaii", "depth": 2}, headers={"X-Memory-User": "graph"}
    ).json()
    nodes = {(node["kind"], node["label"]) for node in answer["nodes"]}
    assert ("memory", "The trip to Hawaii is planned with Sarah") in nodes
    assert ("name", "Sarah") in nodes
    assert "Oslo" not in str(answer)
    around = development.get("/recollect/v1/graph", params={"around": "Sarah"}, headers={"X-Memory-User": "graph"})
    assert "Sarah lives in Denver" in around.text
    assert "Hawaii" in around.text


def cache_hits(client: httpx.Client) -> float:
    """Return how many lookups Redis answered."""
    hits = r'^recollect_cache_lookups_total\{cache="lookup",result="hit"\} (\S+)$'
    return sum(map(float, re.findall(hits, client.get("/metrics").text, re.MULTILINE)))


def test_the_budget_of_session_a_answers_session_b_after_a_restart_and_redis_caches_it(
    tmp_path: Path, llm: ScriptedLLM
) -> None:
    """The problem statement: told on March 15, asked in a new session on March 20."""
    home = tmp_path / "home"
    home.mkdir()
    text = CONFIG.replace("milvus:19530", str(home / "milvus.db")).replace("qwen:8000", llm.base_url[7:])
    (home / "config.yaml").write_text(text.replace("batch_size: 10", "batch_size: 2"))
    options = ("--preset", "semantic-router", "--upstream", llm.base_url)
    patient = {"RECOLLECT_MEMORY_TIMEOUT_S": "60", "RECOLLECT_RECALL_TIMEOUT_S": "60"}
    patient |= {"RECOLLECT_INDEX_TIMEOUT_S": "60", "RECOLLECT_LEARN_WAIT_S": "0"}
    llm.when(asks_about("budget for my Hawaii trip")).reply_json([{"type": "semantic", "content": BUDGET}])
    answer = "Your budget for the Hawaii trip is $10,000!"
    llm.when(lambda each: EXTRACT not in each.text and f"- {BUDGET}" in each.text).reply(answer)

    def say(server: RecollectServer, session: str, text: str, user: str = "user_456") -> str:
        body = {
            "model": "qwen3",
            "messages": [{"role": "user", "content": text}],
            "memory_config": {"enabled": True, "auto_store": True},
            "memory_context": {"user_id": user},
        }
        headers = {"X-Memory-Session": session}
        said = httpx.post(f"{server.url}/v1/chat/completions", json=body, headers=headers, timeout=60)
        return str(said.json()["choices"][0]["message"]["content"])

    with RecollectServer(home, *options, **patient) as first:
        assert say(first, "march-15", "The budget for my Hawaii trip is $10,000") == "Noted."
        assert say(first, "march-15", "We fly to Hilo with Ann") == "Noted."
        with httpx.Client(base_url=first.url, timeout=60) as client:
            wait_until(lambda: listed(client, "user_456") == [BUDGET])
        first.process.send_signal(signal.SIGTERM)
        assert first.process.wait(60) == 0
    # From now on with the hot cache of phase 2, also for fast lookups of single memories.
    redis = {"RECOLLECT_REDIS_URL": running_redis().url, "RECOLLECT_REDIS_TIMEOUT_S": "5"}
    redis |= {"RECOLLECT_CACHE_MIN_MS": "0", "RECOLLECT_CACHE_LOOKUPS": "all"}
    with (
        RecollectServer(home, *options, **patient, **redis) as second,
        httpx.Client(base_url=second.url, timeout=60) as client,
    ):
        assert say(second, "march-20", "What's my budget for the trip?") == answer
        assert say(second, "march-20", "What's my budget for the trip?", "user_789") == "Noted."
        [memory] = client.get("/v1/memory", params={"user_id": "user_456"}).json()["memories"]
        path, before = f"/v1/memory/{memory['id']}", cache_hits(client)
        wait_until(lambda: client.get(path).json()["content"] == BUDGET and cache_hits(client) > before)
        client.delete(path)
        assert client.get(path).status_code == 404
        assert listed(client, "user_456") == []


# Milvus


def rows_in_milvus(home: Path, folder: Path, user: str) -> tuple[list[str], int]:
    """Return the collections and the number of rows of a user in a copy of the file, which the server has open."""
    copy = shutil.copytree(home / "milvus.db", folder / "copy.db")

    async def count() -> int:
        embedder = StaticEmbedder()
        engine = MilvusVectorStore(MilvusOptions(address=str(copy)), embedder.model)
        rows = await engine.rows(hash_user(user))
        await engine.close()
        await embedder.close()
        return len(rows)

    rows = asyncio.run(count())
    return sorted(folder.name for folder in (copy / "collections").iterdir()), rows


def test_milvus_is_the_store_from_the_first_memory(client: httpx.Client, home: Path, tmp_path: Path) -> None:
    store(client, BUDGET, "first")
    wait_until(lambda: "; 0 users behind the ledger" in run_cli(home, "index", "status").stdout)
    assert rows_in_milvus(home, tmp_path, "first") == (["agentic_memory"], 1)
    query = {"query": "What's my budget for the trip?", "user_id": "first"}
    [found] = client.post("/v1/memory/search", json=query).json()["results"]
    assert found["memory"]["content"] == BUDGET


@pytest.mark.engines
def test_the_collection_of_a_milvus_server_has_the_parameters_as_written(tmp_path: Path) -> None:
    from pymilvus import MilvusClient

    milvus = running_milvus()
    home = tmp_path / "home"
    home.mkdir()
    text = CONFIG.replace("milvus:19530", milvus.url.removeprefix("http://")).partition("  # Extraction")[0]
    (home / "config.yaml").write_text(text.replace("agentic_memory", "agentic_memory_as_written"))
    with (
        RecollectServer(home, "--preset", "semantic-router") as running,
        httpx.Client(base_url=running.url, timeout=60) as client,
    ):
        store(client, BUDGET, "first")
        wait_until(lambda: "rows of 1 user; 0 users behind" in run_cli(home, "index", "status").stdout)
    collections = MilvusClient(milvus.url)
    [index_name] = collections.list_indexes("agentic_memory_as_written")
    index = collections.describe_index("agentic_memory_as_written", index_name)
    assert (index["index_type"], int(index["M"]), int(index["efConstruction"])) == ("HNSW", 16, 256)
    collections.drop_collection("agentic_memory_as_written")
    collections.close()


def test_index_status_beside_a_running_server_says_that_the_file_is_in_use(client: httpx.Client, home: Path) -> None:
    store(client, BUDGET, "status")
    shown = run_cli(home, "index", "status")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "Milvus Lite is open in another process, such as a server" in shown.stdout


def test_a_search_on_the_command_line_beside_a_running_server_uses_the_ledger(
    client: httpx.Client, home: Path
) -> None:
    store(client, BUDGET, "beside")
    found = run_cli(home, "search", "What is the budget for Hawaii?", "--user", "beside")
    assert found.returncode == 0
    assert BUDGET in found.stdout
    assert "Traceback" not in found.stderr
