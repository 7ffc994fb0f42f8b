"""`recollect worker` as a process: it runs the jobs of other processes, and stops on signals."""

from __future__ import annotations

import json
import re
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from recollect import Memory
from recollect.testing.scripted_llm import RecordedRequest, ScriptedLLM
from tests.support.forked import ForkedCommand
from tests.support.recollect_server import environment
from tests.support.remember_samples import EXTRACT, NOTHING, contents, exchange, llm_requests, new_turns, opened

USERS = [f"user-{number}" for number in range(8)]
CITIES = ["Lisbon", "Oslo", "Kyoto", "Lima", "Prague", "Seoul", "Quito", "Porto"]


@pytest.fixture
def llm() -> Iterator[ScriptedLLM]:
    with ScriptedLLM() as model:
        model.default = NOTHING
        yield model


@pytest.fixture
def home(tmp_path: Path, llm: ScriptedLLM) -> Path:
    """A home folder with the model in its settings."""
    lines = [f'llm = "scripted"\nllm_url = "{llm.base_url}"\nllm_api_key = "x"\nlearn_wait_s = 0\n']
    (tmp_path / "config.toml").write_text("".join(lines))
    return tmp_path


@contextmanager
def worker(home: Path, *options: str) -> Iterator[ForkedCommand]:
    """Start a worker, and kill it at the end if it still runs."""
    log = Path(tempfile.mkstemp(dir=home, suffix=".log")[1])
    process = ForkedCommand(["worker", *options], environment(home), log)
    with process.stdout:
        try:
            if "--json" not in options:
                assert process.stdout.readline().startswith("Working as ")
            yield process
        finally:
            process.kill()


def store_messages(home: Path, llm: ScriptedLLM, users: list[str]) -> Memory:
    """Store messages for another process to learn from; return a memory without a worker."""
    memory = opened(home, llm, learn_wait_s=0.2, worker=False)
    for user, city in zip(users, CITIES, strict=False):
        memory.remember(exchange(f"I live in {city}"), user_id=user, session_id="s")
    memory.close()
    return opened(home, llm, worker=False)


def lives_in(request: RecordedRequest) -> str:
    """Reply as the model."""
    city = re.search(r"I live in (\w+)", "\n".join(new_turns(request)))
    assert city
    return json.dumps({"memories": [{"turns": [1], "content": f"The user lives in {city[1]}", "by": "user"}]})


def eventually(happened: Callable[[], object], within_s: float = 60.0) -> None:
    end = time.monotonic() + within_s
    while not happened():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


def send_signal(process: ForkedCommand, number: signal.Signals) -> None:
    """Send a signal and wait until it is delivered, since two pending signals are merged into one."""
    process.send_signal(number)

    def has_arrived() -> bool:
        try:
            status = Path(f"/proc/{process.pid}/status").read_text()
        except (FileNotFoundError, ProcessLookupError):
            return True
        pending = [int(line.split()[1], 16) for line in status.splitlines() if line.startswith(("SigPnd", "ShdPnd"))]
        return not any(mask & 1 << number - 1 for mask in pending)

    eventually(has_arrived)


def ended(process: ForkedCommand, *, code: int = 0) -> str:
    """Return the rest of the output, after the process ended with this code."""
    out = process.stdout.read()
    errors = process.log.read_text()
    assert "Traceback" not in errors
    assert process.wait(60) == code, errors
    return out


def are_done(memory: Memory, count: int) -> bool:
    return len(memory.jobs.list(states=["done"])) == count


def test_a_worker_runs_the_jobs_of_another_process(home: Path, llm: ScriptedLLM) -> None:
    llm.when(EXTRACT).reply(lives_in)
    with worker(home) as process, store_messages(home, llm, USERS[:2]) as memory:
        eventually(lambda: are_done(memory, 2))
        process.send_signal(signal.SIGTERM)
        assert ended(process) == "Did 2 jobs.\n"
        for user, city in zip(USERS[:2], CITIES, strict=False):
            assert contents(memory.get_all(user_id=user)) == [f"The user lives in {city}"]


def test_sigterm_finishes_the_running_job_and_starts_no_other(home: Path, llm: ScriptedLLM) -> None:
    go_on = threading.Event()

    def slow(request: RecordedRequest) -> str:
        assert go_on.wait(60)
        return lives_in(request)

    llm.when(EXTRACT).reply(slow)
    with worker(home, "--json") as process, store_messages(home, llm, USERS[:1]) as memory:
        llm.wait_for(lambda llm: llm_requests(llm, EXTRACT), timeout_s=60)
        send_signal(process, signal.SIGTERM)
        assert process.poll() is None
        store_messages(home, llm, USERS[1:2]).close()
        assert process.poll() is None
        go_on.set()
        assert json.loads(ended(process)) == {"done": 1}
        assert contents(memory.get_all(user_id=USERS[0])) == ["The user lives in Lisbon"]
        assert len(llm_requests(llm, EXTRACT)) == 1
        assert [job.scope.user for job in memory.jobs.list(states=["waiting"]) if job.kind == "extract"] == [USERS[1]]


def test_a_second_interrupt_stops_at_once_and_releases_the_job(home: Path, llm: ScriptedLLM) -> None:
    go_on = threading.Event()
    llm.when(EXTRACT).reply(lambda request: lives_in(request) if go_on.wait(60) else "")
    with worker(home) as process, store_messages(home, llm, USERS[:1]) as memory:
        llm.wait_for(lambda llm: llm_requests(llm, EXTRACT), timeout_s=60)
        send_signal(process, signal.SIGINT)
        assert process.poll() is None
        send_signal(process, signal.SIGINT)
        ended(process, code=130)
        go_on.set()
        [job] = [job for job in memory.jobs.list() if job.kind == "extract"]
        assert job.state == "waiting"
        assert memory.jobs.run_pending() == 1
        assert contents(memory.get_all(user_id=USERS[0])) == ["The user lives in Lisbon"]


def test_two_workers_share_the_jobs(home: Path, llm: ScriptedLLM) -> None:
    both, waited = threading.Barrier(2, timeout=60), threading.Semaphore(2)

    def together(request: RecordedRequest) -> str:
        # However long the second takes to start, the first does not do it all.
        if waited.acquire(blocking=False):
            both.wait()
        return lives_in(request)

    llm.when(EXTRACT).reply(together)
    # One job at a time, so that neither can take them all at once.
    with (home / "config.toml").open("a") as file:
        file.write("worker_jobs = 1\n")
    with (
        worker(home, "--json") as one,
        worker(home, "--json") as other,
        store_messages(home, llm, USERS) as memory,
    ):
        eventually(lambda: are_done(memory, len(USERS)))
        for process in (one, other):
            process.send_signal(signal.SIGTERM)
        done = [json.loads(ended(process))["done"] for process in (one, other)]
        assert sum(done) == len(llm_requests(llm, EXTRACT)) == len(USERS)
        assert min(done) > 0
        for user, city in zip(USERS, CITIES, strict=True):
            assert contents(memory.get_all(user_id=user)) == [f"The user lives in {city}"]
