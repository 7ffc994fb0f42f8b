"""Answers of the built-in model quote memories: they are never found, and are forgotten with the fact."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx

from recollect import Memory
from tests.support.recollect_server import RecollectServer

FACT = "The wifi at home is called HorsforthHippo."
NAME = "HorsforthHippo"
PATIENT = {"RECOLLECT_MEMORY_TIMEOUT_S": "60", "RECOLLECT_RECALL_TIMEOUT_S": "60"}


def say(client: httpx.Client, text: str, **fields: Any) -> str:
    body = {"model": "gpt-5-mini", "user": "mia", "messages": [{"role": "user", "content": text}], **fields}
    answer = client.post("/v1/chat/completions", json=body).raise_for_status().json()
    return str(answer["choices"][0]["message"]["content"])


def respond(client: httpx.Client, text: str) -> str:
    body = {"model": "gpt-5-mini", "user": "mia", "input": text}
    answer = client.post("/v1/responses", json=body).raise_for_status().json()
    return str(answer["output"][-1]["content"][0]["text"])


def test_an_answer_that_quotes_a_memory_is_not_found_and_is_forgotten_with_it(tmp_path: Path) -> None:
    with RecollectServer(tmp_path, **PATIENT) as server, httpx.Client(base_url=server.url, timeout=60) as client:
        say(client, FACT)
        assert NAME in say(client, "What is my wifi called?")
        assert NAME in respond(client, "How is the wifi named?")
    with Memory(home=tmp_path) as memory:
        memory.jobs.run_pending()
        hits = memory.search("What is my wifi called?", user_id="mia", limit=20)
        assert hits
        assert all("what I remember" not in hit.memory and "nearest I remember" not in hit.memory for hit in hits)
        told = [turn for turn in memory.search(NAME, user_id="mia", limit=20) if NAME in turn.memory]
        memory.delete(told[0].id, user_id="mia")
        assert not [hit for hit in memory.search(NAME, user_id="mia", limit=20) if NAME in hit.memory]
        for session in memory.sessions.list(user_id="mia"):
            turns = memory.sessions.turns(user_id="mia", session_id=session.scope.session)
            assert not [turn for turn in turns if NAME in turn.content]


def test_invalid_messages_are_rejected_as_an_llm_would(tmp_path: Path) -> None:
    with RecollectServer(tmp_path, **PATIENT) as server, httpx.Client(base_url=server.url, timeout=60) as client:
        for messages, complaint in (
            ([{"role": "user", "content": 5}], "`messages[0].content` must be a text or a list of parts, got int"),
            (["hello"], "`messages[0]` must be {'role', 'content'}, got str"),
            ([], "`messages` is empty"),
        ):
            answer = client.post("/v1/chat/completions", json={"model": "m", "messages": messages})
            error = answer.json()["error"]
            assert (answer.status_code, error["type"], error["param"]) == (400, "invalid_request_error", "messages")
            assert error["message"].startswith(complaint)


def test_a_number_names_a_user(tmp_path: Path) -> None:
    with RecollectServer(tmp_path, **PATIENT) as server, httpx.Client(base_url=server.url, timeout=60) as client:
        say(client, FACT, user=7)
    with Memory(home=tmp_path) as memory:
        assert memory.admin.users() == ["7"]
