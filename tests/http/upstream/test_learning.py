"""Learning with the model of the chat at the upstream: with the server's own access, limited and reported."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import httpx
import pytest

from recollect.config.settings import Settings, load
from recollect.http.auth.caller import LOCAL_CALLER
from recollect.http.upstream.extractive import ExtractiveUpstream
from recollect.http.upstream.http_upstream import HttpUpstream
from recollect.http.upstream.learning import (
    USER_TOKENS_A_DAY,
    WITH_CHAT_MODEL,
    WITHOUT_LLM,
    UpstreamModels,
    access_of,
    allowance_of,
    describe_start,
    is_local,
)
from recollect.http.upstream.router import open_upstream_router
from recollect.model.job import ExtractPayload, Job, JobKind, JobState, NewJob, create_job
from recollect.model.query import Listing
from recollect.model.scope import Scope
from recollect.model.times import now
from recollect.testing.llm_replies import ScriptedReply
from recollect.testing.scripted_llm import ScriptedLLM
from tests.support.cli_runner import Cli
from tests.support.llm_faults import http_error
from tests.support.proxy_server import BUDGET, KEY, ServedProxy, chat, served
from tests.support.recollect_server import RecollectServer
from tests.support.remember_samples import EXTRACT, NOTHING, claim, learns, llm_requests

OWN = "sk-server-fedcba9876543210"
FACT = "The budget for the Hawaii trip is $10,000"
PROSE = "Okay, got it."
NO_KEY = "the server holds no key for the upstream"
NOT_YET = "the upstream has not answered without a key yet"
BY_WORKER = "`recollect worker` does the jobs, and uses a model only where llm is set"
_T = TypeVar("_T")


def learning_server(home: Path, llm: ScriptedLLM, **settings: Any) -> Any:
    """Serve with learning at once, with the upstream unless the settings say otherwise."""
    usual = {"worker": True, "learn_with_upstream": True, "learn_wait_s": 0}
    return served(home, llm.base_url, **{**usual, **settings})


def until(condition: Callable[[], _T]) -> _T:
    """Return the result once it is true, or the last one after a minute."""
    deadline = time.monotonic() + 60
    while not (value := condition()) and time.monotonic() < deadline:
        time.sleep(0.02)
    return value


def jobs(server: ServedProxy, user: str = "alex", kind: JobKind = JobKind.EXTRACT) -> list[Job]:
    """Return the finished jobs of a user, oldest first."""
    results = server.run(server.service.jobs.list(user, states=[JobState.DONE, JobState.DEAD]))
    return [job for job in reversed(results) if job.kind is kind]


def all_learned(server: ServedProxy, user: str = "alex") -> bool:
    """Return whether both turns of each chat are stored and learned from."""
    conversations = server.run(server.service.sessions.list(user))
    return bool(conversations) and all(
        each.turn_count % 2 == 0 and each.learned_to == each.turn_count for each in conversations
    )


def say(server: ServedProxy, text: str = BUDGET, *, model: str = "gpt-5-mini", **headers: str) -> list[Job]:
    """Chat, and wait until all turns are learned from; return the jobs."""
    answer = server.post(chat(text, model=model, user="alex"), **headers)
    assert answer.status == 200, answer.body
    assert until(lambda: all_learned(server))
    return jobs(server)


def facts(server: ServedProxy, user: str = "alex") -> list[str]:
    results = server.run(server.service.find(Scope(user), Listing()))
    return sorted(record.content for record in results if record.category not in ("turn", "summary", "episode"))


def health(server: ServedProxy) -> str:
    """Return how /health describes learning."""
    report: str = httpx.get(f"http://127.0.0.1:{server.port}/health", timeout=60).json()["learning"]
    return report


def remembered(server: ServedProxy, user: str, *, session: str = "") -> dict[str, Any]:
    """Store a turn without a chat, and return the job that learned from it."""
    url = f"http://127.0.0.1:{server.port}/recollect/v1/remember"
    headers = {"X-Memory-User": user, "X-Memory-Session": session}
    answer = httpx.post(url, json={"messages": BUDGET, "wait_s": 60}, headers=headers, timeout=90)
    job: dict[str, Any] = answer.raise_for_status().json()["job"]
    return job


class TestWithAKey:
    def test_the_model_of_the_chat_learns_with_the_key_of_the_server(self, tmp_path: Path, llm: ScriptedLLM) -> None:
        learns(llm, BUDGET, claim(FACT))
        with learning_server(tmp_path, llm, upstream_api_key=OWN) as server:
            assert health(server) == WITH_CHAT_MODEL
            done = say(server, authorization=f"Bearer {KEY}")
            assert facts(server) == [FACT]
            assert done[0].result is not None
            assert done[0].result["by"] == "llm"
            assert done[0].payload == ExtractPayload(model="gpt-5-mini")
            assert health(server) == "learning with gpt-5-mini via the upstream"
        questions = llm_requests(llm, EXTRACT)
        assert {each.json["model"] for each in questions} == {"gpt-5-mini"}
        assert {each.headers["authorization"] for each in questions} == {f"Bearer {OWN}"}
        assert all("(learning)" in each.headers["user-agent"] for each in questions)
        assert not llm.calls("models")

    def test_each_chat_is_learned_from_with_its_model(self, tmp_path: Path, llm: ScriptedLLM) -> None:
        llm.when(EXTRACT).reply(NOTHING)
        with learning_server(tmp_path, llm, upstream_api_key=OWN) as server:
            say(server, BUDGET, model="first")
            say(server, "My name is Alex and I live in Oslo.", model="second")
            assert health(server) == "learning with second via the upstream"
        assert {each.json["model"] for each in llm_requests(llm, EXTRACT)} == {"first", "second"}

    def test_a_response_is_learned_from_with_its_model(self, tmp_path: Path, llm: ScriptedLLM) -> None:
        learns(llm, BUDGET, claim(FACT))
        with learning_server(tmp_path, llm, upstream_api_key=OWN, upstream_responses="native") as server:
            answer = server.post({"model": "gpt-5-nano", "input": BUDGET, "user": "alex"}, path="/responses")
            assert answer.status == 200
            assert until(lambda: all_learned(server))
            assert facts(server) == [FACT]
        assert {each.json["model"] for each in llm_requests(llm, EXTRACT)} == {"gpt-5-nano"}

    def test_of_several_endpoints_that_of_the_model_is_used(self, tmp_path: Path, llm: ScriptedLLM) -> None:
        with ScriptedLLM() as other:
            other.when(EXTRACT).reply(NOTHING)
            many = {"big": {"models": "org/*", "url": other.base_url, "api_key": OWN}}
            with learning_server(tmp_path, llm, upstreams=many, upstream_api_key="sk-first") as server:
                say(server, model="org/big")
            assert {each.headers["authorization"] for each in llm_requests(other, EXTRACT)} == {f"Bearer {OWN}"}
        assert not llm.calls("chat")

    def test_a_key_in_an_upstream_error_is_not_reported(
        self, tmp_path: Path, llm: ScriptedLLM, caplog: pytest.LogCaptureFixture
    ) -> None:
        complaint = {"error": {"message": f"key {OWN} cannot do that", "type": "invalid_request_error"}}
        llm.when(EXTRACT).reply(lambda _: _refused(400, complaint))
        with learning_server(tmp_path, llm, upstream_api_key=OWN) as server:
            [first, *_] = say(server)
            report = health(server)
        assert "refused the request (400)" in report
        for text in (str(first.to_dict()), report, caplog.text):
            assert OWN not in text


def _refused(status: int, body: object = None) -> ScriptedReply:
    return ScriptedReply("", faults=[http_error(status, body)])


class TestWithoutAKey:
    def test_a_local_endpoint_is_used_without_the_key_of_the_client(self, tmp_path: Path, llm: ScriptedLLM) -> None:
        learns(llm, BUDGET, claim(FACT))
        with learning_server(tmp_path, llm) as server:
            until(lambda: health(server) == WITH_CHAT_MODEL)
            say(server, authorization=f"Bearer {KEY}")
            assert facts(server) == [FACT]
        [of_client] = [each for each in llm.calls("chat") if EXTRACT not in each.text]
        assert of_client.headers["authorization"] == f"Bearer {KEY}"
        for each in [*llm_requests(llm, EXTRACT), *llm.calls("models")]:
            assert "authorization" not in each.headers
        assert len(llm.calls("models")) == 1

    def test_an_endpoint_that_needs_a_key_is_not_used_with_that_of_the_client(
        self, tmp_path: Path, llm: ScriptedLLM
    ) -> None:
        llm.fault(http_error(401), times=None, on="models")
        with learning_server(tmp_path, llm) as server:
            until(lambda: "needs a key" in health(server))
            [first, *_] = say(server, authorization=f"Bearer {KEY}")
            assert first.result is not None
            assert "needs a key and the server holds none" in first.result["by"]
            assert facts(server)
            assert health(server) == f"{WITHOUT_LLM} (the upstream needs a key and the server holds none)"
        assert not llm_requests(llm, EXTRACT)

    def test_a_remote_endpoint_without_a_key_is_not_used(self) -> None:
        elsewhere = HttpUpstream("http://llm.example.org/v1", "", connect_s=1, idle_s=1)
        access = access_of(elsewhere)
        assert (access.is_open, access.is_probed) == (False, False)
        assert "holds no key" in access.reason

    def test_a_host_is_local_by_its_address_or_name(self) -> None:
        assert all(map(is_local, ("127.0.0.1", "localhost", "::1", "10.0.0.5", "192.168.1.2", "ollama")))
        assert not any(map(is_local, ("api.openai.com", "8.8.8.8", "llm.example.org", "2001:4860::8888")))


class TestFallback:
    def test_a_model_that_answers_without_json_is_tried_once_and_everything_is_learned(
        self, tmp_path: Path, llm: ScriptedLLM
    ) -> None:
        llm.default = PROSE
        with learning_server(tmp_path, llm) as server:
            until(lambda: health(server) == WITH_CHAT_MODEL)
            say(server, BUDGET, model="mock")
            done = say(server, "My name is Alex and I live in Oslo.", model="mock")
            assert all(job.state is JobState.DONE and job.tries == 1 for job in done)
            assert done[0].result is not None
            assert "mock cannot be used for learning: it answered without JSON" in done[0].result["by"]
            assert len(facts(server)) >= 2
            assert health(server).startswith(f"{WITHOUT_LLM} (mock is left out for 10 min: it answered without JSON")
            spent = server.run(server.service.usage.spent_today("alex"))
        assert len(llm_requests(llm, EXTRACT)) == 1
        assert spent.calls == 1
        assert spent.tokens > 0

    def test_a_model_that_the_upstream_does_not_offer_is_tried_once(self, tmp_path: Path, llm: ScriptedLLM) -> None:
        llm.when(EXTRACT).reply(lambda _: _refused(404))
        with learning_server(tmp_path, llm, upstream_api_key=OWN) as server:
            say(server, BUDGET)
            done = say(server, "My name is Alex and I live in Oslo.")
            assert {job.state for job in done} == {JobState.DONE}
            assert done[-1].result is not None
            assert len(facts(server)) >= 2
            assert "does not offer it for chats (404)" in health(server)
        assert len(llm_requests(llm, EXTRACT)) == 1

    def test_learning_waits_for_an_upstream_that_is_briefly_unavailable(
        self, tmp_path: Path, llm: ScriptedLLM
    ) -> None:
        learns(llm, BUDGET, claim(FACT))
        with learning_server(tmp_path, llm, upstream_api_key=OWN) as server:
            answered = llm.when(EXTRACT).reply(lambda _: _refused(503, {"error": "busy"}))
            server.post(chat(BUDGET, model="gpt-5-mini", user="alex"))
            llm.wait_for(lambda each: len(llm_requests(each, EXTRACT)) >= 3)
            answered.remove()
            assert until(lambda: all_learned(server))
            assert facts(server) == [FACT]


class TestWhichModel:
    def test_turns_without_a_model_are_learned_from_with_the_last_one_of_the_user(
        self, tmp_path: Path, llm: ScriptedLLM
    ) -> None:
        llm.when(EXTRACT).reply(NOTHING)
        settings: dict[str, Any] = {"upstream_api_key": OWN}
        with learning_server(tmp_path, llm, **settings) as server:
            assert "no chat has named a model yet" in remembered(server, "ann")["result"]["by"]
            say(server, "My name is Alex and I live in Oslo.", model="first")
        # The next server reads it from the jobs.
        llm.clear()
        with learning_server(tmp_path, llm, **settings) as server:
            assert remembered(server, "alex", session="monday")["result"]["by"] == "llm"
            assert remembered(server, "ann", session="monday")["result"]["by"] == "llm"
            assert health(server) == "learning with first via the upstream"
        assert [each.json["model"] for each in llm_requests(llm, EXTRACT)] == ["first", "first"]

    def test_an_unknown_model_does_not_replace_one_that_works(self, tmp_path: Path, llm: ScriptedLLM) -> None:
        llm.when(EXTRACT).reply(
            lambda request: _refused(404) if request.json["model"] == "typo" else ScriptedReply(NOTHING)
        )
        with learning_server(tmp_path, llm, upstream_api_key=OWN) as server:
            say(server, BUDGET, model="works")
            say(server, "My name is Alex and I live in Oslo.", model="typo")
            assert health(server) == "learning with works via the upstream"
            assert remembered(server, "alex", session="monday")["result"]["by"] == "llm"
        assert llm_requests(llm, EXTRACT)[-1].json["model"] == "works"

    def test_learning_with_the_upstream_can_be_switched_off(self, tmp_path: Path, llm: ScriptedLLM) -> None:
        with learning_server(tmp_path, llm, upstream_api_key=OWN, learn_with_upstream=False) as server:
            [first, *_] = say(server)
            assert first.payload is None
            assert facts(server)
            assert health(server) == WITHOUT_LLM
        assert not llm_requests(llm, EXTRACT)

    def test_a_configured_llm_has_precedence(self, tmp_path: Path, llm: ScriptedLLM) -> None:
        llm.when(EXTRACT).reply(NOTHING)
        own = {"llm": "own-model", "llm_url": llm.base_url, "upstream_api_key": OWN}
        with served(tmp_path, llm.base_url, worker=True, learn_with_upstream=True, learn_wait_s=0, **own) as server:
            say(server)
            assert health(server) == "learning with own-model"
        assert {each.json["model"] for each in llm_requests(llm, EXTRACT)} == {"own-model"}


class TestLimits:
    def test_each_user_has_a_daily_limit_by_default(self) -> None:
        assert allowance_of(Settings()).user == USER_TOKENS_A_DAY == 100_000
        assert allowance_of(load({"llm_user_tokens_per_day": 0}, environ={}).settings).user == 0
        assert allowance_of(load({"llm_user_tokens_per_day": 5}, environ={}).settings).user == 5

    def test_beyond_the_limit_learning_continues_without_the_model(self, tmp_path: Path, llm: ScriptedLLM) -> None:
        learns(llm, BUDGET, claim(FACT))
        with learning_server(tmp_path, llm, upstream_api_key=OWN, llm_user_tokens_per_day=1) as server:
            say(server)
            before = len(llm_requests(llm, EXTRACT))
            done = say(server, "My name is Alex and I live in Oslo.")
            assert done[-2].result is not None
            assert len(llm_requests(llm, EXTRACT)) == before == 1
            assert len(facts(server)) >= 2


class TestStartupReport:
    @pytest.mark.parametrize(
        ("settings", "description"),
        [
            ({}, WITHOUT_LLM),
            ({"learn": "off"}, "learning is off"),
            ({"llm": "gpt-5-mini"}, "learning with gpt-5-mini"),
            ({"llm": "gpt-5-mini", "learn": "rules"}, WITHOUT_LLM),
            ({"upstream_api_key": OWN}, WITH_CHAT_MODEL),
            ({"upstream_api_key": OWN, "learn_with_upstream": False}, WITHOUT_LLM),
            ({"upstream_api_key": OWN, "learn": "rules"}, WITHOUT_LLM),
            ({"upstream_url": "local:model.gguf"}, WITH_CHAT_MODEL),
            (
                {"upstream_url": "https://api.openai.com/v1"},
                f"{WITHOUT_LLM} ({NO_KEY})",
            ),
            (
                {"upstream_url": "http://ollama/v1"},
                f"{WITHOUT_LLM} ({NOT_YET})",
            ),
            ({"upstream_api_key": OWN, "worker": False}, f"{WITHOUT_LLM} ({BY_WORKER})"),
        ],
    )
    def test_the_start_describes_how_learning_is_done(self, settings: dict[str, Any], description: str) -> None:
        assert describe_start(load(settings, environ={}).settings) == description

    def test_the_first_log_line_names_the_model(self, tmp_path: Path, llm: ScriptedLLM) -> None:
        home = tmp_path / "home"
        home.mkdir()
        with RecollectServer(
            home, "--upstream", llm.base_url, "--llm", "small-1", "--llm-url", llm.base_url
        ) as server:
            assert server.log.splitlines()[0].endswith(": learning with small-1")

    def test_doctor_describes_how_learning_is_done(
        self, tmp_path: Path, llm: ScriptedLLM, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        cli = Cli(tmp_path / "home")
        assert f"{WITHOUT_LLM}\n" in cli("doctor").stdout
        monkeypatch.setenv("RECOLLECT_UPSTREAM_URL", llm.base_url)
        assert WITH_CHAT_MODEL in cli("doctor").stdout
        llm.fault(http_error(401), times=None, on="models")
        output = cli("doctor").stdout
        assert "needs a key and the server holds none" in output
        assert "set llm, or upstream_api_key" in output


async def test_a_clients_key_is_used_for_its_project_only_and_not_for_unknown_callers(tmp_path: Path) -> None:
    values = {"home": tmp_path, "upstream_url": "https://models.example/v1", "learn_with_client_key": True}
    settings = load(values, environ={}).settings
    upstreams = open_upstream_router(settings, fallback=ExtractiveUpstream())
    models = UpstreamModels(settings, upstreams)
    work, headers = Scope("ann", "work"), [(b"authorization", b"Bearer sk-client")]

    async def no_jobs(user: str | None) -> list[Job]:
        return []

    async def can_learn(scope: Scope) -> bool:
        payload = ExtractPayload(model="large")
        new = NewJob(kind=JobKind.EXTRACT, payload=payload)
        job = create_job(scope, new, at=now())
        return (await models.choose(job, no_jobs)).chat is not None

    try:
        upstream = upstreams.for_model("large")
        models.note_client_key(work, upstream, headers, caller=replace(LOCAL_CALLER, is_unknown=True))
        assert not await can_learn(work)
        models.note_client_key(work, upstream, headers, caller=LOCAL_CALLER)
        assert await can_learn(work)
        assert not await can_learn(Scope("ann", "home"))
        assert not await can_learn(Scope("ann"))
    finally:
        await models.close()
        await upstreams.close()
