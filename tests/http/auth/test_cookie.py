"""The page's login: a key in a cookie that no script reads, no other site can use, and no upstream receives."""

from __future__ import annotations

from collections.abc import Iterator
from http.cookies import SimpleCookie
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from httpx import Response

from recollect.http.auth.middleware import COOKIE_NAME
from recollect.testing.scripted_llm import ScriptedLLM
from tests.support.auth_samples import HERE, OUTSIDE, bearer, make_key, serving

V1 = "/recollect/v1"
PAGE = {"X-Recollect-Page": "1"}
_ADDRESSES = count(1)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    with serving(tmp_path_factory.mktemp("home"), auth="keys") as client:
        yield client


@pytest.fixture
def client(server: TestClient) -> TestClient:
    """A client of the server without cookies, whose address nobody else has."""
    client = TestClient(server.app, client=(f"192.0.2.{next(_ADDRESSES)}", 4711), base_url=HERE)
    # The server runs in this loop.
    client.portal = server.portal
    return client


def log_in(client: TestClient, key: str, **headers: str) -> Response:
    return client.post(f"{V1}/login", json={"key": key}, headers=headers)


def cookie_of(answer: Response) -> Any:
    return SimpleCookie(answer.headers["set-cookie"])[COOKIE_NAME]


def test_a_key_logs_in_and_out(client: TestClient) -> None:
    assert client.get(f"{V1}/me").status_code == 401
    answer = log_in(client, make_key(client, user="ann", name="laptop"))
    assert answer.status_code == 200, answer.text
    assert answer.headers["cache-control"] == "no-store"
    cookie = cookie_of(answer)
    assert (cookie["httponly"], cookie["samesite"], cookie["path"], cookie["secure"]) == (True, "Strict", "/", "")
    me = client.get(f"{V1}/me").json()
    assert (me["kind"], me["name"], me["user_id"], me["by_cookie"]) == ("key", "key:laptop", "ann", True)
    assert (me["admin"], me["read"], me["write"], me["needs_login"]) == (False, True, True, False)
    assert me["server"]["needs_keys"]
    assert {**me, "by_cookie": False} == answer.json()
    assert client.get(f"{V1}/memories").status_code == 200
    assert client.post(f"{V1}/logout").status_code == 204
    assert client.get(f"{V1}/me").status_code == 401


def test_a_local_server_without_keys_needs_no_login(tmp_path: Path) -> None:
    with serving(tmp_path) as client:
        me = client.get(f"{V1}/me").json()
        assert (me["kind"], me["user_id"], me["admin"], me["acts_as_person"]) == ("local", None, True, True)
        assert not me["server"]["needs_keys"]
        assert not me["server"]["upstream"]
        assert me["server"]["learning"].startswith("learning without an LLM")
        # A cookie of an earlier life of the server: it is deleted, and the next request works.
        answer = client.get(f"{V1}/me", headers={"Cookie": f"{COOKIE_NAME}=rk_gone"})
        assert (answer.status_code, cookie_of(answer)["max-age"]) == (401, "0")
        assert client.get(f"{V1}/me").status_code == 200


def test_changes_by_cookie_need_the_header_of_the_page(client: TestClient) -> None:
    key = make_key(client, user="ann")
    log_in(client, key)
    body = {"content": "Ann plays chess"}
    refused = client.post(f"{V1}/memories", json=body)
    assert refused.status_code == 403
    assert "X-Recollect-Page: 1" in refused.json()["error"]["message"]
    for method, path in (("PATCH", "/memories/x"), ("DELETE", "/memories/x"), ("POST", "/search")):
        assert client.request(method, f"{V1}{path}").status_code == 403
    assert client.post(f"{V1}/memories", json=body, headers={**PAGE, "Origin": HERE}).status_code == 201
    # A key in a header is no cookie, and needs nothing else.
    assert client.post(f"{V1}/memories", json=body, headers=bearer(key)).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:9999"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_other_pages_cannot_use_the_cookie(client: TestClient, headers: dict[str, str]) -> None:
    log_in(client, make_key(client, user="ann"))
    assert client.post(f"{V1}/search", json={"query": "chess"}, headers=PAGE).status_code == 200
    answer = client.post(f"{V1}/search", json={"query": "chess"}, headers={**PAGE, **headers})
    assert answer.status_code == 403, answer.text
    if "Sec-Fetch-Site" in headers:
        assert client.get(f"{V1}/memories", headers=headers).status_code == 403


def test_no_other_site_can_log_a_browser_in(client: TestClient) -> None:
    answer = log_in(client, make_key(client, user="ann"), Origin="http://evil.example")
    assert answer.status_code == 403
    assert "set-cookie" not in answer.headers


def test_wrong_keys_count_for_the_lockout_and_wrong_cookies_are_deleted(client: TestClient) -> None:
    answer = client.get(f"{V1}/me", headers={"Cookie": f"{COOKIE_NAME}=rk_wrong"})
    assert answer.status_code == 401
    assert cookie_of(answer)["max-age"] == "0"
    good = make_key(client, user="ann")
    for _ in range(9):
        assert log_in(client, "rk_guess").status_code == 401
    locked = log_in(client, good)
    assert locked.status_code == 429
    assert int(locked.headers["retry-after"]) > 0
    assert "set-cookie" not in locked.headers
    assert good not in locked.text


def test_what_is_no_key_is_refused(client: TestClient) -> None:
    assert log_in(client, "not-a-key").status_code == 401
    for body in ({}, {"key": ""}, {"key": 3}, {"key": "rk_" + "x" * 500}, {"key": "rk_x", "more": 1}):
        answer = client.post(f"{V1}/login", json=body)
        assert answer.status_code == 400, body
        assert "rk_x" not in answer.text


def test_the_cookie_is_for_the_api_and_the_chats_of_the_page_only(client: TestClient) -> None:
    log_in(client, make_key(client, user="ann"))
    for path in ("/whoami", "/v1/memory", "/v1/files", "/metrics"):
        assert client.get(path, headers=PAGE).status_code == 401, path


def test_an_explicit_key_overrides_the_cookie(client: TestClient) -> None:
    log_in(client, make_key(client, user="ann"))
    me = client.get(f"{V1}/me", headers=bearer(make_key(client, user="bob"))).json()
    assert (me["user_id"], me["by_cookie"]) == ("bob", False)


def test_the_cookie_never_reaches_the_upstream(tmp_path: Path) -> None:
    with ScriptedLLM() as llm, serving(tmp_path, auth="keys", upstream_url=llm.base_url) as client:
        key = make_key(client, user="ann")
        log_in(client, key)
        client.cookies.set("theme", "dark")
        chat = {"model": "m", "messages": [{"role": "user", "content": "Hello"}]}
        assert client.post("/v1/chat/completions", json=chat).status_code == 403
        for headers in (PAGE, bearer(key)):
            assert client.post("/v1/chat/completions", json=chat, headers=headers).status_code == 200
        client.get("/v1/models")
        client.get("/v1/models", headers=bearer(key))
        assert len(llm.requests) == 4
        for request in llm.requests:
            received = {name.lower(): value for name, value in dict(request.headers).items()}
            assert received["cookie"] == "theme=dark"
            assert "x-recollect-page" not in received
            assert "rk_" not in str(received)


@pytest.mark.parametrize(
    ("settings", "headers", "expected"),
    [
        ({"base_path": "/memory"}, {}, ("/memory", "")),
        ({"base_path": "/memory"}, {"X-Forwarded-Prefix": "/other"}, ("/memory", "")),
        ({"trusted_gateways": OUTSIDE}, {"X-Forwarded-Prefix": "/a/b/"}, ("/a/b", "")),
        ({"trusted_gateways": OUTSIDE}, {"X-Forwarded-Proto": "https"}, ("/", True)),
        ({"trusted_gateways": OUTSIDE}, {"X-Forwarded-Prefix": "/a; Domain=x"}, ("/", "")),
        ({}, {"X-Forwarded-Proto": "https", "X-Forwarded-Prefix": "/a"}, ("/", "")),
    ],
)
def test_path_and_security_of_the_cookie_follow_the_proxy(
    tmp_path: Path, settings: dict[str, str], headers: dict[str, str], expected: tuple[str, object]
) -> None:
    with serving(tmp_path, peer=OUTSIDE, auth="keys", **settings) as client:
        cookie = cookie_of(log_in(client, make_key(client, user="ann"), **headers))
        assert (cookie["path"], cookie["secure"]) == expected


def test_over_https_the_cookie_is_secure(client: TestClient) -> None:
    answer = client.post("https://127.0.0.1/recollect/v1/login", json={"key": make_key(client, user="ann")})
    assert cookie_of(answer)["secure"] is True
