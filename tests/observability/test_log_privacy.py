"""Logs, stderr and job errors have neither secrets nor content, whatever fails."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from fastapi.testclient import TestClient

from recollect import Memory
from recollect.cli.main import root
from recollect.errors import InvalidInput, RecollectError
from recollect.http.app import make_app
from recollect.model.job import JobState
from recollect.testing.fake_embedder import FakeEmbedder
from recollect.testing.llm_replies import Fault, error_body
from recollect.testing.scripted_llm import ScriptedLLM
from recollect.write import learn
from recollect.write.redact import RedactingLogFilter
from tests.support.cli_runner import Cli
from tests.support.llm_faults import html_page, http_error, truncated
from tests.support.remember_samples import ALEX, EXTRACT, TALK, opened, settings, user

KEY = "sk-proj-4f9aT1QdX7mB2zLw8RkV5nYc3HjE6uPs"
LOGIN = "hunter2-Xk29"
SECRET = "ghp_R7bK2mXq9TzLw4VfN8cYd1HsJ5pGe3Ua6oBi"
WORDS = "the quokka named Zanzibar sleeps in Ljubljana"
PRIVATE_MESSAGE = f"Please note that {WORDS}, my deploy token is {SECRET} and my password is wombat-77x."
# Parts of what was said that nothing else speaks of.
CANARIES = (KEY[8:24], LOGIN, SECRET[4:20], "wombat-77x", "quokka", "Zanzibar", "Ljubljana")


@pytest.fixture(autouse=True)
def _retry_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recollect.maintenance.worker.RetryPolicy.wait_s", lambda self, tries: 0.0)


@contextmanager
def captured_logs() -> Iterator[io.StringIO]:
    """Collect all formatted log records, with tracebacks."""
    log = io.StringIO()
    handler = logging.StreamHandler(log)
    handler.setFormatter(logging.Formatter("%(levelname)s %(name)s %(message)s"))
    loggers = [logging.getLogger(name) for name in ("", "recollect", "httpx", "httpcore", "asyncio")]
    before = [(each.level, each.propagate) for each in loggers]
    for each in loggers:
        each.setLevel(logging.DEBUG)
        each.propagate = False
        each.addHandler(handler)
    try:
        yield log
    finally:
        for each, (level, propagate) in zip(loggers, before, strict=True):
            each.removeHandler(handler)
            each.setLevel(level)
            each.propagate = propagate


def leaked_canaries(text: str) -> list[str]:
    """Return the canaries in a text."""
    return [canary for canary in CANARIES if canary.casefold() in text.casefold()]


def with_login(llm: ScriptedLLM) -> dict[str, Any]:
    """Return settings with a key and a password in the address, and without redaction of turns."""
    url = llm.base_url.replace("http://", f"http://bob:{LOGIN}@")
    return {"llm_url": url, "llm_api_key": KEY, "redact_turns": False, "job_tries": 2}


def dead_letters(memory: Memory) -> str:
    """Store the message, let its job fail to the end twice, and return the errors of the jobs."""
    job = memory.remember(user(PRIVATE_MESSAGE), **TALK).job
    assert job is not None
    for repeated in (False, True):
        if repeated and job.state is JobState.DEAD:
            memory.jobs.replay([job.id], user_id=ALEX)
        for _ in range(6):
            memory.jobs.run_pending()
            job = memory.jobs.get(job.id, user_id=ALEX)
            assert job.error or job.result
    return json.dumps([each.to_dict() for each in memory.jobs.list(user_id=ALEX)])


@pytest.mark.parametrize(
    "fault",
    [
        http_error(500, error_body(f"cannot parse {PRIVATE_MESSAGE} sent with {KEY}")),
        http_error(400, error_body(f"cannot parse {PRIVATE_MESSAGE} sent with {KEY}")),
        truncated(),
        html_page(),
    ],
    ids=["500", "400", "truncated", "html"],
)
def test_errors_of_a_model_that_quote_the_prompt_are_not_logged(
    tmp_path: Path, llm: ScriptedLLM, fault: Fault, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As if the pause of the LLM's circuit breaker were over.
    monkeypatch.setattr("recollect.aio.breaker.OPEN_S", 0.0)
    llm.fault(fault, times=None, on="chat")
    with captured_logs() as log, opened(tmp_path, llm, worker=False, **with_login(llm)) as memory:
        concurrent = dead_letters(memory)
        memory.recall(user("What did I say about my token?"), user_id=ALEX)
        memory.search("token", user_id=ALEX)
    assert "failed at try 1" in log.getvalue()
    assert "httpx" in log.getvalue()
    assert leaked_canaries(log.getvalue() + concurrent) == []
    assert EXTRACT in llm.calls("chat")[0].text


def test_invalid_answers_of_a_model_are_not_logged(tmp_path: Path, llm: ScriptedLLM) -> None:
    for number, answer in enumerate(
        (
            PRIVATE_MESSAGE,
            json.dumps({"memories": PRIVATE_MESSAGE}),
            json.dumps({"memories": [{PRIVATE_MESSAGE: PRIVATE_MESSAGE}]}),
        )
    ):
        llm.clear()
        with captured_logs() as log, opened(tmp_path / str(number), llm, worker=False, **with_login(llm)) as memory:
            llm.when(EXTRACT).reply(answer)
            memory.remember(user(PRIVATE_MESSAGE), **TALK)
            memory.jobs.run_pending()
            errors = [job.error or "" for job in memory.jobs.list(user_id=ALEX)]
        assert leaked_canaries(log.getvalue() + " ".join(errors)) == []


def test_a_bug_in_a_job_is_logged_without_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def mistaken(turns: Any, **more: Any) -> Any:
        try:
            raise KeyError(turns[0].content)
        except KeyError as error:
            raise ValueError(f"bad turn {turns[0].content!r}") from error

    monkeypatch.setattr(learn, "select_facts", mistaken)
    with captured_logs() as log, opened(tmp_path, worker=False, redact_turns=False, job_tries=2) as memory:
        concurrent = dead_letters(memory)
    assert "ValueError in test_log_privacy.py" in concurrent
    assert "Traceback" in log.getvalue()
    assert leaked_canaries(log.getvalue() + concurrent) == []
    cli = Cli(tmp_path)
    for output in (
        cli("jobs", "--user", ALEX),
        cli("jobs", "--user", ALEX, "--json"),
        cli("jobs", "--state", "dead"),
    ):
        assert leaked_canaries(output.output) == []


@pytest.mark.parametrize("kind", [ValueError, OSError])
def test_errors_of_an_embedder_that_quote_texts_are_not_logged(tmp_path: Path, kind: type[Exception]) -> None:
    class Repeating(FakeEmbedder):
        async def embed(self, texts: Any, **options: Any) -> Any:
            if self.fail_with is not None:
                raise kind(f"cannot embed: {' '.join(texts)}")
            return await super().embed(texts, **options)

    embedder = Repeating(16)
    with captured_logs() as log, Memory(home=tmp_path, embedder=embedder) as memory:
        embedder.fail_with = kind("with its texts")
        memory.remember(user(PRIVATE_MESSAGE), **TALK, wait=True)
        memory.add(PRIVATE_MESSAGE, user_id=ALEX)
        memory.search(PRIVATE_MESSAGE, user_id=ALEX)
        memory.recall(user(PRIVATE_MESSAGE), user_id=ALEX)
        memory.sessions.end(user_id=ALEX, session_id="monday", wait=True)
        concurrent = json.dumps([job.to_dict()["error"] for job in memory.jobs.list(user_id=ALEX)])
    assert "without vectors" in log.getvalue()
    assert leaked_canaries(log.getvalue() + concurrent) == []


def test_normal_operation_is_logged_without_content(tmp_path: Path, llm: ScriptedLLM) -> None:
    with captured_logs() as log, opened(tmp_path, llm, **with_login(llm)) as memory:
        memory.remember(
            [*user(PRIVATE_MESSAGE), {"role": "user", "content": WORDS, "timestamp": PRIVATE_MESSAGE}],
            **TALK,
            wait=True,
        )
        added = memory.acting_as("python", why=PRIVATE_MESSAGE).add(
            PRIVATE_MESSAGE, user_id=ALEX, metadata={"note": PRIVATE_MESSAGE}
        )
        memory.update(added.id, f"Now {PRIVATE_MESSAGE}", user_id=ALEX)
        memory.recall(user(PRIVATE_MESSAGE), user_id=ALEX, trace=True)
        memory.admin.maintain(user_id=ALEX)
        memory.delete(added.id, user_id=ALEX)
        memory.undo(user_id=ALEX)
        memory.erasure.erase(user_id=ALEX, everything=True)
    assert "httpx" in log.getvalue()
    assert leaked_canaries(log.getvalue()) == []


BAD: list[dict[str, Any]] = [
    {"content": PRIVATE_MESSAGE, "metadata": PRIVATE_MESSAGE},
    {"content": PRIVATE_MESSAGE, "metadata": {"note": {PRIVATE_MESSAGE}}},
    {"content": PRIVATE_MESSAGE, "tags": PRIVATE_MESSAGE},
    {"content": PRIVATE_MESSAGE, "detail": [PRIVATE_MESSAGE]},
    {"content": {"text": PRIVATE_MESSAGE}},
    {"content": f"{PRIVATE_MESSAGE}\0"},
    {"content": PRIVATE_MESSAGE, "evidence": PRIVATE_MESSAGE},
]


def test_validation_errors_do_not_repeat_the_input(tmp_path: Path) -> None:
    with Memory(home=tmp_path, embedder=FakeEmbedder(16)) as memory:
        for fields in BAD:
            with pytest.raises(RecollectError) as raised:
                memory.add(user_id=ALEX, **fields)
            assert leaked_canaries(str(raised.value)) == []


@pytest.mark.parametrize(
    "messages",
    [
        [{"content": PRIVATE_MESSAGE}],
        [PRIVATE_MESSAGE],
        [{"role": 5, "content": PRIVATE_MESSAGE}],
        [[PRIVATE_MESSAGE]],
    ],
    ids=["none", "text", "5", "list"],
)
def test_validation_errors_do_not_repeat_messages(tmp_path: Path, messages: Any) -> None:
    with Memory(home=tmp_path, embedder=FakeEmbedder(16)) as memory:
        with pytest.raises(InvalidInput) as raised:
            memory.remember(messages, **TALK)
        with pytest.raises(InvalidInput) as ran:
            memory.sessions.end_run("deploy", **TALK, steps=[{"kind": "talk", "content": PRIVATE_MESSAGE}])
        assert leaked_canaries(f"{raised.value} {ran.value}") == []


def test_the_command_line_prints_no_content_on_stderr(tmp_path: Path) -> None:
    cli = Cli(tmp_path)
    lines = (
        json.dumps({"memory": PRIVATE_MESSAGE, "user_id": ALEX, "tags": PRIVATE_MESSAGE}),
        f'{{"memory": "{PRIVATE_MESSAGE}',
    )
    outputs = [
        cli("remember", PRIVATE_MESSAGE, "--user", ALEX, "--session", "monday", "-v"),
        cli("recall", PRIVATE_MESSAGE, "--user", ALEX, "-v"),
        cli("search", PRIVATE_MESSAGE, "--user", ALEX, "-v"),
        *(cli("import", input=line, code=2) for line in lines),
        *(CliRunner().invoke(root, ["import", "-v", "--home", str(tmp_path)], input=line) for line in lines),
    ]
    # A person sees their own memories on stdout; of secrets nothing is left there either.
    assert [leaked_canaries(each.stderr) for each in outputs] == [[]] * len(outputs)
    everything = cli("list", "--user", ALEX).output + cli("history", "--user", ALEX).output + cli("jobs").output
    assert not {SECRET[4:20], "wombat-77x"} & set(leaked_canaries(everything))


def test_the_server_logs_no_content_of_failing_jobs(tmp_path: Path, llm: ScriptedLLM) -> None:
    more = with_login(llm)
    with opened(tmp_path, llm, worker=False, **more) as memory:
        memory.remember(user(PRIVATE_MESSAGE), **TALK)
    body = error_body(f"cannot parse {PRIVATE_MESSAGE} sent with {KEY}")
    llm.fault(http_error(500, body), times=None, on="chat")
    with captured_logs() as log, TestClient(make_app(settings(tmp_path, llm, log_level="debug", **more))) as client:
        llm.wait_for(lambda server: len(server.calls("chat")) >= 3, timeout_s=60)
        answers = [client.get(path).text for path in ("/health", "/ready")]
    assert leaked_canaries(log.getvalue() + " ".join(answers)) == []


def test_the_log_filter_redacts_secrets_in_any_message() -> None:
    log = logging.getLogger("recollect.net")
    net = RedactingLogFilter()
    with captured_logs() as logged:
        log.addFilter(net)
        log.warning("took %s for %d", SECRET, 3)
        log.warning(f"plain {SECRET}")
        log.warning('%s - "%s %s" %d', "127.0.0.1:5", "GET", f"/find?q={SECRET}", 200)
        try:
            raise ValueError(SECRET)
        except ValueError:
            log.exception("it failed")
        log.removeFilter(net)
    assert leaked_canaries(logged.getvalue()) == []
    assert logged.getvalue().count("[redacted: GitHub token]") == 4
    assert "Traceback" in logged.getvalue()
