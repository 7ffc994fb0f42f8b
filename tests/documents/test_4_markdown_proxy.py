"""The Markdown memory proxy (preset markdown-proxy) on a real server, requirement by requirement."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from math import exp
from pathlib import Path
from typing import Any

import httpx
import pytest

from recollect.integrations.markdown_proxy import MemoryClient
from recollect.models.neural import NeuralReranker
from recollect.models.static_embedder import StaticEmbedder
from recollect.testing.scripted_llm import RecordedRequest, ScriptedLLM
from tests.support.llm_faults import http_error
from tests.support.mirror_samples import body, front_matter
from tests.support.recollect_server import RecollectServer
from tests.support.remember_samples import EXTRACT, NOTHING, SUMMARY, asks_about, changes, claim, learns

CLIENT_KEY = "sk-client-0123456789abcdef"
SERVER_KEY = "sk-server-fedcba9876543210"
BIKE = "User's bike is a red Cargo bike"
ANSWER = "I see, thank you for telling me."
# On a loaded machine a slow search must not time out.
PATIENT = {
    "RECOLLECT_MEMORY_TIMEOUT_S": "60",
    "RECOLLECT_RECALL_TIMEOUT_S": "60",
    "RECOLLECT_RERANK_TIMEOUT_S": "60",
    "RECOLLECT_LEARN_WAIT_S": "0",
}


def is_chat(request: RecordedRequest) -> bool:
    return not any(prompt in request.text for prompt in (EXTRACT, SUMMARY))


def summarize(request: RecordedRequest) -> str:
    """Return the summary so far with the new lines of the user."""
    rows = [json.loads(line) for line in request.text.splitlines() if line.startswith('{"')]
    old = next(row["summary so far"] for row in rows if "summary so far" in row)
    return " ".join([old or "The user said:", *(row["said"] for row in rows if row.get("who") == "user")])


class Proxy:
    """The proxy with its LLM and its folder."""

    def __init__(self, server: RecollectServer, llm: ScriptedLLM, folder: Path) -> None:
        self.server, self.llm, self.folder = server, llm, folder

    def chat(self, text: str, memory_id: str, *, key: str = CLIENT_KEY, **fields: Any) -> Any:
        """Send a chat; return the answer."""
        request = {"model": "scripted", "messages": [{"role": "user", "content": text}], **fields}
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        url = f"{self.server.url}/v1/chat/completions"
        answer = httpx.post(url, json={**request, "memory_id": memory_id}, headers=headers, timeout=90)
        assert answer.status_code == 200, answer.text
        return answer

    def hits(self, text: str, memory_id: str, **fields: Any) -> list[dict[str, Any]]:
        """Send a chat; return the memories that were used."""
        hits: list[dict[str, Any]] = self.chat(text, memory_id, **fields).json()["memory_hits"]
        return hits

    def sent(self) -> RecordedRequest:
        """Return the last chat that the LLM received."""
        return [each for each in self.llm.calls("chat") if is_chat(each)][-1]

    def prompt(self) -> str:
        """Return the last message of the last chat that the LLM received."""
        return str(self.sent().json["messages"][-1]["content"])

    def files(self, memory_id: str, kind: str) -> list[Path]:
        return sorted((self.folder / "entries" / memory_id).glob(f"{kind}/*.md"))

    def facts(self, memory_id: str) -> dict[str, Path]:
        return {body(path): path for path in self.files(memory_id, "facts")}

    def tell(self, text: str, memory_id: str, fact: str) -> Path:
        """Send a chat from which the LLM extracts one fact; return the fact's file."""
        learns(self.llm, text, claim(fact))
        self.chat(text, memory_id)
        path: Path = wait(lambda: self.facts(memory_id).get(fact))
        return path


def wait(condition: Callable[[], Any]) -> Any:
    """Wait until a condition is true, and return its value."""
    deadline = time.monotonic() + 90
    while not (value := condition()) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert value, "the condition was not true within 90 s"
    return value


def scripted_llm() -> ScriptedLLM:
    # As many dimensions as text-embedding-3-small has.
    llm = ScriptedLLM(dimensions=1536)
    llm.default = NOTHING
    llm.when(is_chat).reply(ANSWER)
    llm.when(SUMMARY).reply(summarize)
    # It tells nobody without a key which models it has.
    llm.fault(http_error(401), times=None, on="models")
    return llm


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    """The proxy as the page starts it, without a key of its own, allowed to learn with the client's."""
    home, folder = tmp_path_factory.mktemp("home"), tmp_path_factory.mktemp("memory_db")
    with scripted_llm() as llm:
        options = ["--preset", "markdown-proxy", "--openai-base-url", llm.base_url, "--memory-path", str(folder)]
        with RecollectServer(home, *options, RECOLLECT_LEARN_WITH_CLIENT_KEY="true", **PATIENT) as server:
            yield Proxy(server, llm, folder)


@pytest.fixture(scope="module")
def second_proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    """The proxy with the other options: a key, an embedding model, Chroma and a small capacity."""
    home, folder = tmp_path_factory.mktemp("home"), tmp_path_factory.mktemp("memory_db")
    note = folder / "entries/global/facts/cat.md"
    note.parent.mkdir(parents=True)
    note.write_text("The user's cat is called Tom")
    with scripted_llm() as llm:
        options = ["--preset", "markdown-proxy", "--openai-base-url", llm.base_url, "--memory-path", str(folder)]
        options += ["--openai-api-key", SERVER_KEY, "--embedding-model", "text-embedding-3-small", "--chroma"]
        options += ["--max-entries", "5", "--no-git-versioning"]
        with RecollectServer(home, *options, **PATIENT) as server:
            yield Proxy(server, llm, folder)


class TestChats:
    def test_the_bearer_of_the_client_is_the_key_of_the_chat_and_of_learning(self, proxy: Proxy) -> None:
        proxy.tell("My kayak is a yellow Prijon.", "keys", "User's kayak is a yellow Prijon")
        wait(lambda: proxy.files("keys", "summaries"))
        of_this_chat = [each for each in proxy.llm.calls("chat") if "yellow Prijon" in each.text]
        assert {is_chat(each) for each in of_this_chat} == {True, False}
        assert {each.headers.get("authorization") for each in of_this_chat} == {f"Bearer {CLIENT_KEY}"}

    def test_the_key_of_one_user_does_not_pay_for_another(self, proxy: Proxy) -> None:
        learns(proxy.llm, "My oboe is a Marigaux.", claim("User's oboe is a Marigaux"))
        proxy.chat("My oboe is a Marigaux.", "oboe", key="", user="ben")
        # Extracted without the LLM.
        folder = proxy.folder / "users"
        wait(lambda: [path for path in folder.rglob("facts/*.md") if "Marigaux" in body(path)])
        assert not [each for each in proxy.llm.calls("chat") if "Marigaux" in each.text and not is_chat(each)]

    def test_the_memory_fields_are_not_forwarded(self, proxy: Proxy) -> None:
        fields = {"memory_top_k": 3, "memory_recency_weight": 0.5, "memory_score_threshold": 0.2}
        proxy.chat("Hello there.", "fields", temperature=0.5, **fields)
        assert proxy.sent().json.keys() == {"model", "messages", "temperature"}

    def test_the_last_user_message_is_replaced_by_summary_memories_and_the_message(self, proxy: Proxy) -> None:
        proxy.tell("My bike is a red Cargo bike.", "bike", "User's bike is a red Cargo bike")
        wait(lambda: proxy.files("bike", "summaries"))
        hits = proxy.hits("What colour is my bike?", "bike")
        assert [(hit["role"], hit["content"]) for hit in hits] == [
            ("user", "My bike is a red Cargo bike."),
            ("memory", "User's bike is a red Cargo bike"),
        ]
        assert all(hit.keys() >= {"role", "content", "created_at", "score"} for hit in hits)
        assert proxy.prompt() == (
            "Conversation summary: The user said: My bike is a red Cargo bike.\n\n"
            "Long-term memory (most relevant first):\n"
            "[user] My bike is a red Cargo bike.\n"
            "[memory] User's bike is a red Cargo bike\n\n"
            "Current message: What colour is my bike?"
        )

    def test_the_latest_user_message_is_searched_for_and_the_others_are_unchanged(self, proxy: Proxy) -> None:
        proxy.tell("My canoe is made of cedar.", "canoe", "User's canoe is made of cedar")
        before = [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Which weekday is it?"},
            {"role": "assistant", "content": "Monday."},
        ]
        hits = proxy.hits("", "canoe", messages=[*before, {"role": "user", "content": "What is my canoe made of?"}])
        assert "User's canoe is made of cedar" in [hit["content"] for hit in hits]
        assert proxy.sent().json["messages"][:-1] == before
        assert proxy.prompt().endswith("\n\nCurrent message: What is my canoe made of?")

    @pytest.mark.parametrize("top_k", [0, -1])
    def test_a_top_k_of_zero_or_less_sends_the_request_as_it_is(self, proxy: Proxy, top_k: int) -> None:
        proxy.tell(f"My desk {top_k} is made of oak.", f"desk{top_k}", f"User's desk {top_k} is made of oak")
        assert proxy.hits("What is my desk made of?", f"desk{top_k}", memory_top_k=top_k) == []
        assert proxy.prompt() == "What is my desk made of?"

    def test_a_conversation_that_is_not_named_is_the_default_one(self, proxy: Proxy) -> None:
        message = {"model": "scripted", "messages": [{"role": "user", "content": "I play the harp."}]}
        httpx.post(f"{proxy.server.url}/v1/chat/completions", json=message, timeout=90).raise_for_status()
        wait(lambda: any(body(path) == "I play the harp." for path in proxy.files("default", "turns/user")))

    def test_a_conversation_sees_its_own_and_the_global_memories_only(self, proxy: Proxy) -> None:
        proxy.tell("My dog is called Rex.", "global", "User's dog is called Rex")
        proxy.tell("My dog is called Bello.", "other", "User's second dog is called Bello")
        contents = {hit["content"] for hit in proxy.hits("What is my dog called?", "third")}
        assert contents >= {"My dog is called Rex.", "User's dog is called Rex"}
        assert not any("Bello" in content for content in contents)

    def test_a_streamed_answer_is_stored_when_it_ends(self, proxy: Proxy) -> None:
        answer = proxy.chat("My piano is a Bechstein.", "stream", stream=True)
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert "memory_hits" not in answer.text
        wait(lambda: [body(path) for path in proxy.files("stream", "turns/assistant")] == [ANSWER])
        assert [body(path) for path in proxy.files("stream", "turns/user")] == ["My piano is a Bechstein."]

    def test_the_user_turn_of_a_stream_is_stored_before_the_answer(self, proxy: Proxy) -> None:
        answered = threading.Event()

        def reply(_: RecordedRequest) -> str:
            return ANSWER if answered.wait(60) else "too late"

        rule = proxy.llm.when(lambda request: is_chat(request) and "Steinway" in request.text).reply(reply)
        with ThreadPoolExecutor(1) as thread:
            chat = thread.submit(proxy.chat, "My grand is a Steinway.", "grand", stream=True)
            wait(lambda: [body(path) for path in proxy.files("grand", "turns/user")] == ["My grand is a Steinway."])
            assert proxy.files("grand", "turns/assistant") == []
            answered.set()
            assert ANSWER.split()[0] in chat.result(90).text
        wait(lambda: [body(path) for path in proxy.files("grand", "turns/assistant")] == [ANSWER])
        rule.remove()

    def test_a_chat_does_not_wait_for_extraction(self, proxy: Proxy) -> None:
        chatted = threading.Event()

        def extract(_: RecordedRequest) -> str:
            content = "User's tuba is heavy" if chatted.wait(60) else "User waited for it"
            return json.dumps({"operations": [claim(content)]})

        proxy.llm.when(asks_about("My tuba is heavy.")).reply(extract)
        assert proxy.chat("My tuba is heavy.", "tuba").json()["choices"][0]["message"]["content"] == ANSWER
        chatted.set()
        wait(lambda: list(proxy.facts("tuba")) == ["User's tuba is heavy"])

    def test_health_returns_the_configuration(self, proxy: Proxy) -> None:
        report = httpx.get(f"{proxy.server.url}/health", timeout=90).json()
        assert (report["status"], report["preset"], report["default_top_k"]) == ("ok", "markdown-proxy", "5")
        assert report["memory_store"] == str(proxy.folder)
        assert report["openai_base_url"] == proxy.llm.base_url


TEXTS = (
    "My sister Anna lives in Oslo.",
    "My sister Anna studies law.",
    "My aunt Berta lives in Bergen.",
    "I would like to visit Oslo in May.",
    "Anna sent a postcard to my aunt.",
)
QUESTION = "Where does my sister Anna live?"


@pytest.fixture(scope="module")
def family(proxy: Proxy) -> Proxy:
    """The proxy after a person wrote five files."""
    write_facts(proxy, "family", *TEXTS)
    return proxy


def write_facts(proxy: Proxy, conversation: str, *texts: str) -> None:
    """Write files as a person does, and wait until they are read."""
    folder = proxy.folder / f"entries/{conversation}/facts"
    folder.mkdir(parents=True)
    for number, text in enumerate(texts):
        (folder / f"{number}.md").write_text(text)
    wait(lambda: all(path.read_text().startswith("---") for path in proxy.files(conversation, "facts")))


def cross_encoder_scores(question: str, texts: Sequence[str]) -> dict[str, float]:
    """Return the cross-encoder's score of each text."""

    async def rerank() -> list[float]:
        reranker = NeuralReranker()
        try:
            return list(await reranker.rerank(question, texts))
        finally:
            await reranker.close()

    return dict(zip(texts, asyncio.run(rerank()), strict=True))


class TestRetrieval:
    def scores(self) -> dict[str, float]:
        return cross_encoder_scores(QUESTION, TEXTS)

    def found(self, proxy: Proxy, **fields: Any) -> dict[str, float]:
        hits = proxy.hits(QUESTION, "family", **fields)
        return {hit["content"]: hit["score"] for hit in hits if hit["content"] in TEXTS}

    def test_relevance_is_the_score_of_the_cross_encoder_and_gives_the_order(self, family: Proxy) -> None:
        expected = self.scores()
        found = self.found(family, memory_recency_weight=0, memory_score_threshold=0, memory_top_k=50)
        assert found == pytest.approx(expected, abs=1e-5)
        assert list(found) == sorted(expected, key=lambda text: -expected[text])

    def test_memories_below_the_threshold_are_discarded(self, family: Proxy) -> None:
        relevant = {text for text, score in self.scores().items() if score >= 0.35}
        assert 0 < len(relevant) < len(TEXTS)
        assert set(self.found(family)) == relevant

    def test_the_score_is_four_fifths_relevance_and_one_fifth_recency(self, family: Proxy) -> None:
        # The files are from today.
        expected = {text: 0.8 * score + 0.2 for text, score in self.scores().items() if score >= 0.35}
        assert self.found(family) == pytest.approx(expected, abs=1e-3)

    def test_top_k_limits_the_memories(self, family: Proxy) -> None:
        assert len(family.hits(QUESTION, "family", memory_top_k=1)) == 1

    def test_recency_decays_with_a_time_constant_of_30_days(self, proxy: Proxy) -> None:
        question = "Where does my uncle Carl live?"
        now = datetime.now(UTC)
        for days, name in ((0, "new"), (60, "old")):
            head = {"id": f"0199aaaa-0000-7000-8000-0000000000{days:02}", "conversation_id": name, "role": "memory"}
            head["created_at"] = (now - timedelta(days=days)).isoformat()
            folder = proxy.folder / f"entries/{name}/facts"
            folder.mkdir(parents=True)
            lines = "".join(f"{key}: {json.dumps(value)}\n" for key, value in head.items())
            (folder / "uncle.md").write_text(f"---\n{lines}---\n\nMy uncle Carl lives in Rome.\n")
            wait(lambda name=name: proxy.hits(question, name))
        [[new], [old]] = [proxy.hits(question, name) for name in ("new", "old")]
        [relevant] = proxy.hits(question, "new", memory_recency_weight=0)[:1]
        assert new["score"] == pytest.approx(0.8 * relevant["score"] + 0.2, abs=1e-3)
        assert old["score"] == pytest.approx(0.8 * relevant["score"] + 0.2 * exp(-2), abs=1e-3)
        [recent] = proxy.hits(question, "old", memory_recency_weight=1)[:1]
        assert recent["score"] == pytest.approx(exp(-2), abs=1e-3)

    def test_mmr_weighs_the_score_by_0_7_against_the_cosine_of_the_embeddings(self, proxy: Proxy) -> None:
        question = "Which instrument does my brother Emil play?"
        one, repeated = "My brother Emil plays the cello in Graz.", "My brother Emil plays the cello at home in Graz."
        other = "Emil goes to concerts."
        write_facts(proxy, "emil", one, repeated, other)
        relevance = cross_encoder_scores(question, (one, repeated, other))
        vectors = StaticEmbedder().encode([one, repeated, other])
        gain = float(vectors[0] @ vectors[1] - vectors[0] @ vectors[2])
        # The weight of recency at which `repeated` and `other` are equally good after `one`: all are of today.
        equal = 1 - 0.3 / 0.7 * gain / (relevance[repeated] - relevance[other])
        assert 0.1 < equal < 0.9
        for weight, chosen in ((equal - 0.04, {one, repeated}), (equal + 0.04, {other})):
            hits = proxy.hits(question, "emil", memory_top_k=2, memory_recency_weight=weight)
            assert len(hits) == 2
            assert chosen <= {hit["content"] for hit in hits}


class TestFiles:
    def test_turns_facts_and_the_summary_are_files_with_front_matter(self, proxy: Proxy) -> None:
        fact = proxy.tell("My tent is a green Hilleberg.", "tent", "User's tent is a green Hilleberg")
        [summary] = wait(lambda: proxy.files("tent", "summaries"))
        [question], [reply] = proxy.files("tent", "turns/user"), proxy.files("tent", "turns/assistant")
        assert (body(question), body(reply)) == ("My tent is a green Hilleberg.", ANSWER)
        assert body(summary) == "The user said: My tent is a green Hilleberg."
        assert summary.name == "summary.md"
        roles = {"user": question, "assistant": reply, "memory": fact, "summary": summary}
        for role, path in roles.items():
            head = front_matter(path)
            assert (head["role"], head["conversation_id"]) == (role, "tent")
            assert head["created_at"]
            assert role == "summary" or path.name.endswith(f"__{head['id']}.md")
        assert front_matter(summary)["summary_kind"] == "summary"

        def indexed() -> bool:
            snapshot = json.loads((proxy.folder / "memory_index.json").read_text())
            return {each["id"] for each in snapshot} >= {front_matter(path)["id"] for path in roles.values()}

        wait(indexed)

    def test_a_changed_file_is_indexed_at_once(self, proxy: Proxy) -> None:
        path = proxy.tell("My car is a blue Volvo.", "car", "User's car is a blue Volvo")
        wait(lambda: proxy.files("car", "summaries"))
        path.write_text(path.read_text().replace("blue", "silver"))
        wait(lambda: front_matter(path).get("version") == 2)
        assert "User's car is a silver Volvo" in {hit["content"] for hit in proxy.hits("Which car do I have?", "car")}

    def test_an_added_file_is_indexed_at_once(self, proxy: Proxy) -> None:
        write_facts(proxy, "barn", "User's barn has a green door")
        hits = proxy.hits("Which colour has the door of my barn?", "barn")
        assert [(hit["role"], hit["content"]) for hit in hits] == [("memory", "User's barn has a green door")]

    def test_a_deleted_file_is_forgotten(self, proxy: Proxy) -> None:
        path = proxy.tell("My boat is called Esmeralda.", "boat", "User's boat is called Esmeralda")
        wait(lambda: proxy.files("boat", "summaries"))
        path.unlink()
        wait(lambda: list((proxy.folder / "entries/deleted/boat").glob("facts/*.md")))
        assert proxy.hits("What is my boat called?", "boat") == []


class TestLearning:
    def test_an_updated_fact_replaces_the_old_one_and_its_file(self, proxy: Proxy) -> None:
        old, new = "User's bank is the Nordbank", "User's bank is the Suedbank"
        proxy.tell("My bank is the Nordbank.", "bank", old)
        changes(proxy.llm, "My bank is the Suedbank now.", "update", old, new)
        proxy.chat("My bank is the Suedbank now.", "bank")
        wait(lambda: list(proxy.facts("bank")) == [new])

    def test_a_deleted_fact_is_not_injected_and_its_file_says_since_when(self, proxy: Proxy) -> None:
        fact = "User's scooter is blue"
        path = proxy.tell("My scooter is blue.", "scooter", fact)
        changes(proxy.llm, "I sold my scooter.", "end", fact, "")
        proxy.chat("I sold my scooter.", "scooter")
        wait(lambda: front_matter(path).get("valid_to"))
        assert fact not in [hit["content"] for hit in proxy.hits("Which colour has my scooter?", "scooter")]
        # The LLM saw the memory under a number, not under its id.
        [asked] = [each for each in proxy.llm.calls("chat") if asks_about("I sold my scooter.")(each)]
        assert '{"memory": 1,' in asked.text
        assert path.stem.partition("__")[2] not in asked.text

    def test_the_file_of_a_deleted_fact_is_replaced_by_the_words_that_ended_it(self, proxy: Proxy) -> None:
        old, new = "User's canoe is grey", "User sold the canoe"
        path = proxy.tell("My canoe is grey.", "sold", old)
        changes(proxy.llm, "I sold my canoe.", "end", old, new)
        proxy.chat("I sold my canoe.", "sold")
        wait(lambda: list(proxy.facts("sold")) == [new])
        assert not path.exists()

    def test_a_message_without_news_changes_no_fact(self, proxy: Proxy) -> None:
        fact = "User's ladder is short"
        path = proxy.tell("My ladder is short.", "ladder", fact)
        learns(proxy.llm, "As I said, my ladder is short.")
        proxy.chat("As I said, my ladder is short.", "ladder")
        wait(lambda: "As I said" in " ".join(body(path) for path in proxy.files("ladder", "summaries")))
        assert proxy.facts("ladder") == {fact: path}

    def test_the_summary_is_updated_from_the_prior_one(self, proxy: Proxy) -> None:
        summaries = []
        for text in ("My kite is purple.", "My sledge is old."):
            proxy.tell(text, "toys", f"User: {text}")
            wait(lambda text=text: text in " ".join(body(path) for path in proxy.files("toys", "summaries")))
            summaries += [body(path) for path in proxy.files("toys", "summaries")]
        first, second = summaries
        assert second == f"{first} My sledge is old."

    def test_facts_come_from_the_user_not_from_the_assistant(self, proxy: Proxy) -> None:
        told = claim("User's lamp is brass")
        invented = claim("User thanks for everything", by="assistant", lines=[2])
        learns(proxy.llm, "My lamp is made of brass.", told, invented)
        proxy.chat("My lamp is made of brass.", "lamp")
        wait(lambda: "User's lamp is brass" in proxy.facts("lamp"))
        wait(lambda: proxy.files("lamp", "summaries"))
        assert list(proxy.facts("lamp")) == ["User's lamp is brass"]


class TestOptions:
    def test_files_written_before_the_start_are_indexed(self, second_proxy: Proxy) -> None:
        wait(lambda: (second_proxy.folder / "entries/global/facts/cat.md").read_text().startswith("---"))
        hits = second_proxy.hits("What is the user's cat called?", "start")
        assert [hit["content"] for hit in hits] == ["The user's cat is called Tom"]

    def test_the_key_of_the_server_is_for_clients_without_one(self, second_proxy: Proxy) -> None:
        second_proxy.chat("Good morning.", "keys", key="")
        assert second_proxy.sent().headers["authorization"] == f"Bearer {SERVER_KEY}"
        second_proxy.chat("Good morning.", "keys")
        assert second_proxy.sent().headers["authorization"] == f"Bearer {CLIENT_KEY}"

    def test_one_option_chooses_the_embedding_model(self, second_proxy: Proxy) -> None:
        assert httpx.get(f"{second_proxy.server.url}/health", timeout=90).json()["embedding_model"] == (
            "text-embedding-3-small"
        )
        asked = second_proxy.llm.calls("embeddings")
        assert {each.json["model"] for each in asked} == {"text-embedding-3-small"}
        assert httpx.get(f"{second_proxy.server.url}/health", timeout=90).json()["dimensions"] == 1536

    def test_one_option_keeps_the_vectors_in_a_chroma_folder(self, second_proxy: Proxy) -> None:
        import sqlite3

        second_proxy.tell("My flute is made of silver.", "flute", "User's flute is made of silver")
        file = second_proxy.folder / "chroma/chroma.sqlite3"
        with sqlite3.connect(f"file:{file}?mode=ro", uri=True) as chroma:
            assert [name for (name,) in chroma.execute("select name from collections")] == ["memory"]
            wait(lambda: chroma.execute("select count(*) from embeddings").fetchone()[0] >= 3)

    def test_the_oldest_turns_and_facts_beyond_max_entries_are_dropped(self, second_proxy: Proxy) -> None:
        for instrument in ("violin", "trumpet", "guitar"):
            second_proxy.tell(f"My {instrument} is new.", "band", f"User's {instrument} is new")

        def entries() -> list[Path]:
            kinds = ("turns/user", "turns/assistant", "facts")
            return [path for kind in kinds for path in second_proxy.files("band", kind)]

        # Nine were written: three questions, three answers, three facts.
        wait(lambda: len(entries()) == 5)
        assert {body(path) for path in entries()} >= {"User's trumpet is new", "User's guitar is new"}
        dropped = second_proxy.folder / "entries/deleted/band"
        wait(lambda: any("violin" in body(path) for path in dropped.glob("turns/user/*.md")))
        assert wait(lambda: second_proxy.files("band", "summaries"))


CONFIG = """\
openai_base_url = "{url}"
openai_api_key = "{key}"
upstream_key = "server"
default_top_k = 1
recency_weight = 1.0
score_threshold = 0.0
mmr_lambda = 1.0
max_entries = 3
enable_summarization = false
enable_git_versioning = false
reranker = "none"
"""


@pytest.fixture(scope="module")
def configured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    """The proxy with its options in a file."""
    folder = tmp_path_factory.mktemp("memory_db")
    with scripted_llm() as llm:
        (folder / "config.toml").write_text(CONFIG.format(url=llm.base_url, key=SERVER_KEY))
        options = ("--preset", "markdown-proxy", "--memory-path", str(folder))
        with RecollectServer(folder, *options, **PATIENT) as server:
            yield Proxy(server, llm, folder)


class TestConfigurationFile:
    def test_the_key_of_the_server_wins_if_upstream_key_says_so(self, configured: Proxy) -> None:
        configured.chat("Good morning.", "keys")
        assert configured.sent().headers["authorization"] == f"Bearer {SERVER_KEY}"

    def test_the_options_apply(self, configured: Proxy) -> None:
        for text in ("My hat is red.", "My coat is blue.", "My scarf is green."):
            configured.chat(text, "wardrobe")
        # One, and by its age alone.
        [hit] = configured.hits("Which hat do I have?", "wardrobe")
        assert hit["score"] == pytest.approx(1, abs=0.01)
        kinds = ("turns/user", "turns/assistant")
        wait(lambda: sum(len(configured.files("wardrobe", kind)) for kind in kinds) == 3)

    def test_without_summarization_nothing_is_extracted(self, configured: Proxy) -> None:
        configured.chat("My belt is brown.", "belt")
        wait(lambda: configured.files("belt", "turns/assistant"))
        assert configured.files("belt", "facts") == configured.files("belt", "summaries") == []
        assert all(is_chat(each) for each in configured.llm.calls("chat"))


class TestMemoryClient:
    async def test_add_extracts_facts_and_a_summary_and_search_finds_them(self, tmp_path: Path) -> None:
        with scripted_llm() as llm:
            learns(llm, "red Cargo bike", claim(BIKE))
            async with MemoryClient(tmp_path, llm.base_url, "scripted", score_threshold=0.2) as client:
                await client.add("My bike is a red Cargo bike.")
                found = await client.search("What colour is my bike?")
                other = await client.search("What colour is my bike?", "another")
                summaries = await client.memory.get_all(user_id="default", filters={"category": "summary"})
        assert "User's bike is a red Cargo bike" in [
            entry.content for entry in found.entries if entry.role == "memory"
        ]
        assert other.entries == ()
        assert [each.content for each in summaries] == ["The user said: My bike is a red Cargo bike."]
        assert not [each for each in llm.calls("chat") if is_chat(each)]
        assert llm.calls("chat")

    async def test_search_calls_no_llm_and_stores_nothing(self, tmp_path: Path) -> None:
        with scripted_llm() as llm:
            async with MemoryClient(tmp_path, llm.base_url, "scripted") as client:
                assert (await client.search("What colour is my bike?")).entries == ()
                assert list(await client.memory.get_all(user_id="default", turns=True)) == []
        assert llm.calls("chat") == []

    def test_a_file_that_was_deleted_meanwhile_is_forgotten_at_the_start(self, tmp_path: Path) -> None:
        async def add() -> None:
            async with MemoryClient(tmp_path) as client:
                await client.add("My bike is a red Cargo bike.")
                await client.add("My dog is called Rex.")

        async def search() -> list[str]:
            async with MemoryClient(tmp_path, score_threshold=0.0) as client:
                return [entry.content for entry in (await client.search("What colour is my bike?")).entries]

        asyncio.run(add())
        files = {path: body(path) for path in tmp_path.glob("entries/default/**/*.md")}
        assert {"My bike is a red Cargo bike.", "My dog is called Rex."} <= set(files.values())
        for path, text in files.items():
            if "bike" in text:
                path.unlink()
        found = asyncio.run(search())
        assert any("My dog is called Rex" in text for text in found)
        assert not any("Cargo" in text for text in found)

    async def test_chat_is_answered_with_memories_and_stored(self, tmp_path: Path) -> None:
        question = "What colour is my bike?"
        with scripted_llm() as llm:
            learns(llm, "red Cargo bike", claim(BIKE))
            async with MemoryClient(tmp_path, llm.base_url, "scripted", openai_api_key=SERVER_KEY) as client:
                await client.add("My bike is a red Cargo bike.")
                answer = await client.chat([{"role": "user", "content": question}])
                turns = await client.memory.get_all(user_id="default", turns=True)
        assert answer["choices"][0]["message"]["content"] == ANSWER
        assert BIKE in [hit["content"] for hit in answer["memory_hits"]]
        assert {question, ANSWER} < {turn.content for turn in turns}
        [sent] = [each for each in llm.calls("chat") if is_chat(each)]
        assert f"[memory] {BIKE}" in sent.text
        assert sent.headers["authorization"] == f"Bearer {SERVER_KEY}"
