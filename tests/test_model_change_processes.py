"""Another embedding model where several processes serve one ledger: all of them go over to it, whoever is killed."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from model_samples import (
    ModelServer,
    embedded_by,
    fill,
    memory_text,
    model_of,
    settings_of,
    variables_of,
    wait_for_model,
)
from server_process import RecollectServer, environment

MEMORY_COUNT = 300
# What a process may take to notice, on a machine that does other things as well; by itself it is one second.
NOTICED_S = 30.0
USER = {"X-Memory-User": "a"}


@pytest.fixture
def models() -> Iterator[ModelServer]:
    with ModelServer() as server:
        yield server


def search_on(server: RecollectServer, number: int) -> list[str]:
    """What a server finds for a word of a memory."""
    request = {"query": f"garden{number}", "limit": 5}
    answer = httpx.post(f"{server.url}/recollect/v1/search", json=request, headers=USER, timeout=60)
    assert answer.status_code == 200, answer.text
    return [hit["memory"] for hit in answer.json()["results"]]


class CallerDep(threading.Thread):
    """Adds memories to a server and looks for them and for others, until it is told that it is over."""

    def __init__(self, server: RecollectServer, first: int) -> None:
        super().__init__(daemon=True)
        self._server, self._number = server, first
        self.over = threading.Event()
        self.wrong: list[str] = []

    def run(self) -> None:
        while not self.over.is_set():
            self._ask(self._number)
            self._number += 1

    def _ask(self, number: int) -> None:
        try:
            new = {"content": memory_text(number)}
            added = httpx.post(f"{self._server.url}/recollect/v1/memories", json=new, headers=USER, timeout=60)
            assert added.status_code == 201, added.text
            for each in (number, number % MEMORY_COUNT):
                assert memory_text(each) in search_on(self._server, each), f"{memory_text(each)} is missing"
        except (AssertionError, httpx.HTTPError) as error:
            self.wrong.append(repr(error))


def test_two_servers_go_over_together_while_they_are_searched_and_written_to(
    tmp_path: Path, models: ModelServer
) -> None:
    home = tmp_path / "home"
    asyncio.run(fill(settings_of(home, models, "old", 64), MEMORY_COUNT))
    # The first has the old settings still, as in the middle of a deployment.
    with (
        RecollectServer(home, **variables_of(models, "old", 64)) as first,
        RecollectServer(home, **variables_of(models, "new", 32)) as second,
    ):
        asking = [CallerDep(first, 1000), CallerDep(second, 2000)]
        for each in asking:
            each.start()
        seen = [wait_for_model(second, "new"), wait_for_model(first, "new")]
        for each in asking:
            each.over.set()
            each.join()
            assert each.wrong == []
        assert abs(seen[0] - seen[1]) < NOTICED_S
    # One of them made the vectors; both would have made twice as many.
    numbers = [int(text.partition("garden")[2]) for text in embedded_by(models, "new")]
    made = [number for number in numbers if number < MEMORY_COUNT]
    assert set(made) == set(range(MEMORY_COUNT))
    assert len(made) < 1.5 * MEMORY_COUNT


def test_who_is_killed_in_the_middle_is_followed_by_another_that_goes_on(tmp_path: Path, models: ModelServer) -> None:
    home, new = tmp_path / "home", variables_of(models, "new", 32)
    asyncio.run(fill(settings_of(home, models, "old", 64), MEMORY_COUNT))
    models.texts["new"] = MEMORY_COUNT // 2
    with RecollectServer(home, **new) as server:
        models.wait_for(lambda each: len(embedded_by(each, "new")) > MEMORY_COUNT // 2)
        [old, coming] = counted(home, new)
        assert (old["model"], old["state"], old["embedder"]) == ("old", "current", "openai:old")
        assert (coming["model"], coming["state"], coming["total"]) == ("new", "coming", MEMORY_COUNT)
        report = httpx.get(f"{server.url}/ready", timeout=60).json()
        assert report["status"] == "ready"
        assert report["model_change"] == {
            "embedding_model": "new", "dimensions": 32, "done": coming["done"], "total": MEMORY_COUNT
        }  # fmt: skip
        assert model_of(server) == "old"
        assert memory_text(7) in search_on(server, 7)
        server.process.kill()
    del models.texts["new"]
    with RecollectServer(home, **new) as server:
        assert memory_text(7) in search_on(server, 7)
        wait_for_model(server, "new")
        assert memory_text(7) in search_on(server, 7)
        assert "model_change" not in httpx.get(f"{server.url}/ready", timeout=60).json()
    assert [each["state"] for each in status(home, new)] == ["replaced", "current"]
    # Nothing is done twice but the batch that was under way.
    assert len(embedded_by(models, "new")) <= MEMORY_COUNT + 64


def counted(home: Path, variables: dict[str, str]) -> list[dict[str, object]]:
    """The same once it has been counted how much there is to do."""
    deadline = time.monotonic() + 60
    while (results := status(home, variables))[-1]["total"] != MEMORY_COUNT and time.monotonic() < deadline:
        time.sleep(0.1)
    return results


def status(home: Path, variables: dict[str, str]) -> list[dict[str, object]]:
    """What the command line says of the models."""
    command = [sys.executable, "-m", "recollect.cli.main", "reembed", "--status", "--json"]
    output = subprocess.run(command, env=environment(home, **variables), capture_output=True, text=True, check=True)
    results: list[dict[str, object]] = json.loads(output.stdout)["models"]
    return results
