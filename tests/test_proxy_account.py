"""What an endpoint keeps under the server's own key is everybody's, so nobody who speaks for one user gets at it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from auth_samples import bearer, make_key, serving

from recollect.testing.scripted_llm import ScriptedLLM

ONE = [{"user": "ann"}, {"project": "work", "everyone": True}, {"user": "ann", "project": "work"}]
STORED_AT_UPSTREAM = [
    ("GET", "files"), ("POST", "files"), ("GET", "files/file-1/content"), ("DELETE", "files/file-1"),
    ("GET", "batches"), ("POST", "batches"), ("GET", "vector_stores"), ("POST", "threads"), ("POST", "assistants"),
    ("GET", "chat/completions"), ("GET", "chat/completions/chatcmpl-1"), ("GET", "fine_tuning/jobs"),
    ("DELETE", "models/ft:mine"), ("POST", "models/ft:mine"), ("POST", "uploads"), ("GET", "something/new"),
    ("GET", "models/%2E%2E/files"), ("GET", "models/..%2Ffiles"), ("GET", "models/%2E%2E;/files"),
    ("GET", "models%5C%2E%2E%5Cfiles"), ("POST", "embeddings/%2E%2E/files"), ("POST", "audio/speech/%2E%2E/voices"),
    ("GET", "models//%2E%2E/files"), ("POST", "embeddings%0A"), ("POST", "images/generations/img-1"),
]  # fmt: skip
COMPUTED = [
    ("GET", "models"), ("HEAD", "models"), ("GET", "models/gpt-4.1"), ("GET", "models/org%2Fname"),
    ("POST", "embeddings"), ("POST", "completions"), ("POST", "moderations"), ("POST", "audio/transcriptions"),
    ("POST", "images/edits"), ("POST", "rerank"),
]  # fmt: skip


def ask(folder: Path, llm: ScriptedLLM, key: dict[str, Any], method: str, path: str, **settings: Any) -> Any:
    chosen = {"auth": "keys", "upstream_url": llm.base_url, "upstream_api_key": "sk-of-the-server", **settings}
    with serving(folder, **chosen) as client:
        return client.request(method, f"/v1/{path}", headers=bearer(make_key(client, **key)))


@pytest.mark.parametrize("key", ONE)
def test_a_key_for_one_does_not_see_what_is_kept_for_all(
    tmp_path: Path, llm: ScriptedLLM, key: dict[str, Any]
) -> None:
    answer = ask(tmp_path, llm, key, "GET", "files")
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "account_of_all")
    assert "upstream_shared" in answer.json()["error"]["message"]
    assert not llm.requests


@pytest.mark.parametrize(("method", "path"), STORED_AT_UPSTREAM)
def test_however_it_is_asked_for(tmp_path: Path, llm: ScriptedLLM, method: str, path: str) -> None:
    assert ask(tmp_path, llm, {"user": "ann"}, method, path).status_code in (403, 405)
    assert not llm.requests


@pytest.mark.parametrize(("method", "path"), COMPUTED)
def test_what_keeps_nothing_is_for_everybody(tmp_path: Path, llm: ScriptedLLM, method: str, path: str) -> None:
    ask(tmp_path, llm, {"user": "ann"}, method, path)
    [request] = llm.requests
    assert (request.method, request.path) == (method, f"/v1/{path}")
    assert request.headers["authorization"] == "Bearer sk-of-the-server"


@pytest.mark.parametrize(
    ("key", "settings"),
    [({"everyone": True}, {}), ({"admin": True}, {}), ({"user": "ann"}, {"upstream_shared": True})],
    ids=["a key for everyone", "an admin key", "shared on purpose"],
)
def test_who_speaks_for_all_reaches_it(
    tmp_path: Path, llm: ScriptedLLM, key: dict[str, Any], settings: dict[str, Any]
) -> None:
    assert ask(tmp_path, llm, key, "GET", "files", **settings).status_code == 200
    assert [request.path for request in llm.requests] == ["/v1/files"]


def test_ones_own_account_is_ones_own(tmp_path: Path, llm: ScriptedLLM) -> None:
    with serving(tmp_path, auth="keys", upstream_url=llm.base_url) as client:
        headers = {"X-API-Key": make_key(client, user="ann"), "Authorization": "Bearer sk-mine"}
        assert client.get("/v1/files", headers=headers).status_code == 200
    assert llm.requests[0].headers["authorization"] == "Bearer sk-mine"
