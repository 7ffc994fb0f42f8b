"""Authentication: keys, gateways, anonymous access on this machine, and lockout."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

from recollect.config.settings import Settings
from recollect.errors import InvalidSettings
from recollect.http.auth import middleware
from recollect.http.auth.address import client_network
from recollect.http.auth.middleware import Lockout
from recollect.http.auth.rules import check_bind, load_auth_rules
from tests.support.auth_samples import OUTSIDE, bearer, make_key, serving


@pytest.fixture
def client(tmp_path: Path) -> Iterator[TestClient]:
    with serving(tmp_path, auth="keys") as client:
        yield client


def test_on_this_machine_nobody_has_to_show_anything(tmp_path: Path) -> None:
    with serving(tmp_path) as client:
        answer = client.get("/whoami").json()
        assert (answer["kind"], answer["admin"], answer["user"]) == ("local", True, None)
        # Somebody else's key is none of our business; it is passed on to where chats go.
        assert client.get("/whoami", headers=bearer("sk-somebody-elses")).status_code == 200


def test_the_first_key_closes_the_door_that_was_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(tmp_path) as client:
        assert client.get("/whoami").status_code == 200
        key = make_key(client, user="ann")
        assert client.get("/whoami").status_code == 401
        assert client.get("/whoami", headers=bearer(key)).json()["user"] == "ann"
        # Revoking the last one does not open it again.
        made = client.portal.call(client.app.state.service.api_keys.list_keys)  # type: ignore[union-attr, attr-defined]
        client.portal.call(client.app.state.service.api_keys.revoke, made[0].id)  # type: ignore[union-attr, attr-defined]
        assert client.get("/whoami").status_code == 401
    with serving(tmp_path) as client:
        assert client.get("/whoami").status_code == 401


def test_off_means_off_though_there_are_keys_but_a_key_that_is_shown_counts(tmp_path: Path) -> None:
    with serving(tmp_path, auth="off") as client:
        key = make_key(client, user="ann")
        assert client.get("/whoami").json()["kind"] == "local"
        assert client.get("/whoami", headers=bearer(key)).json()["user"] == "ann"
        assert client.get("/whoami", headers=bearer("rk_wrong")).status_code == 401


@pytest.mark.parametrize(
    "header",
    [
        lambda key: {"Authorization": f"Bearer {key}"},
        lambda key: {"authorization": f"bearer  {key} "},
        lambda key: {"Authorization": f"Token {key}"},
        lambda key: {"Authorization": key},
        lambda key: {"X-API-Key": key},
        lambda key: {"api-key": key},
        lambda key: {"Authorization": "Bearer sk-for-the-upstream", "X-API-Key": key},
    ],
)
def test_a_key_may_be_shown_as_clients_do(client: TestClient, header: Any) -> None:
    key = make_key(client, user="ann", project="p", writes=False, name="phone")
    answer = client.get("/whoami", headers=header(key)).json()
    assert answer == {
        "kind": "key",
        "name": "key:phone",
        "user": "ann",
        "project": "p",
        "admin": False,
        "reads": True,
        "writes": False,
        "is_unknown": False,
        "named_project": None,
        "scope": {"user": "ann", "project": "p", "session": "", "everywhere": False},
    }


@pytest.mark.parametrize(
    "headers",
    [{}, {"Authorization": ""}, {"Authorization": "Bearer"}, {"Authorization": "Bearer sk-x"}, {"X-API-Key": "x"}],
)
def test_who_shows_nothing_is_told_what_to_show(client: TestClient, headers: dict[str, str]) -> None:
    answer = client.get("/whoami", headers=headers)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"].startswith("Bearer")
    assert answer.json()["error"]["code"] == "Unauthenticated"
    assert "recollect keys add" in answer.json()["error"]["message"]
    refused = client.post("/v1/chat/completions", headers=headers, json={"messages": []})
    assert refused.status_code == 401
    assert refused.json()["error"]["type"] == "invalid_request_error"
    assert refused.json()["error"]["code"] == "unauthenticated"


def test_health_is_told_to_everyone(client: TestClient) -> None:
    for path in ("/live", "/health", "/ready", "/version", "/openapi.json", "/docs"):
        assert client.get(path).status_code == 200
    for path in ("/live/", "//live", "/live/../whoami", "/LIVE", "/nothing"):
        assert client.get(path, follow_redirects=False).status_code == 401


def test_a_socket_without_a_key_is_not_opened(client: TestClient) -> None:
    with pytest.raises(WebSocketDisconnect), client.websocket_connect("/anything"):
        pass


def test_a_key_of_one_user_speaks_for_no_other(client: TestClient) -> None:
    headers = bearer(make_key(client, user="ann"))
    assert client.get("/whoami", headers=headers, params={"user_id": "ann"}).status_code == 200
    for other in ("bob", "Ann", "ann ", "a%6En", "*", "' OR 1=1 --"):
        answer = client.get("/whoami", headers=headers, params={"user_id": other})
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "NotAllowed")
        assert other not in answer.text
    named = client.get("/whoami", headers={**headers, "x-authz-user-id": "bob"})
    assert named.status_code == 403
    assert client.get("/whoami", headers={**headers, "x-authz-user-id": "ann"}).status_code == 200


def test_a_key_of_one_project_speaks_for_no_other(client: TestClient) -> None:
    headers = bearer(make_key(client, user="ann", project="p"))
    assert client.get("/whoami", headers=headers).json()["scope"]["project"] == "p"
    assert client.get("/whoami", headers=headers, params={"project_id": "q"}).status_code == 403
    anyones = bearer(make_key(client, everyone=True, project="p"))
    scope = client.get("/whoami", headers=anyones, params={"user_id": "bob"}).json()["scope"]
    assert scope == {"user": "bob", "project": "p", "session": "", "everywhere": False}


def test_a_key_for_everyone_has_to_name_a_user(client: TestClient) -> None:
    headers = bearer(make_key(client, everyone=True))
    assert client.get("/whoami", headers=headers, params={"user_id": "bob"}).json()["scope"]["user"] == "bob"
    answer = client.get("/whoami", headers=headers)
    assert (answer.status_code, answer.json()["error"]["code"]) == (401, "MissingUser")


# Gateways

GATEWAY = {"auth": "gateway", "trusted_gateways": "10.1.0.0/16, 192.0.2.9"}


@pytest.mark.parametrize("peer", ["10.1.2.3", "192.0.2.9", "::ffff:10.1.2.3"])
def test_a_trusted_gateway_says_who_is_asking(tmp_path: Path, peer: str) -> None:
    with serving(tmp_path, peer=peer, **GATEWAY) as client:
        answer = client.get("/whoami", headers={"x-authz-user-id": "ann"}).json()
        assert (answer["kind"], answer["user"], answer["admin"]) == ("gateway", "ann", False)
        assert client.get("/whoami", headers={"x-authz-user-id": "ann"}, params={"user_id": "bob"}).status_code == 403


@pytest.mark.parametrize("peer", [OUTSIDE, "127.0.0.1", "10.2.0.1", "::1", "testclient", ""])
def test_nobody_else_is_believed(tmp_path: Path, peer: str) -> None:
    with serving(tmp_path, peer=peer, **GATEWAY) as client:
        made_up = {"x-authz-user-id": "ann", "X-Forwarded-For": "10.1.2.3", "Forwarded": "for=10.1.2.3"}
        answer = client.get("/whoami", headers=made_up)
        assert answer.status_code == 401
        assert "gateways" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [("x-authz-user-id", "")],
        [("x-authz-user-id", " ")],
        [("x-authz-user-id", "ann"), ("x-authz-user-id", "bob")],
        [("x-authz-user-id", "bob"), ("X-Authz-User-Id", "bob")],
        [("x-authz-user-id", "x" * 301)],
        [("x_authz_user_id", "ann")],
    ],
)
def test_a_gateway_that_names_nobody_or_two_is_refused(tmp_path: Path, headers: list[tuple[str, str]]) -> None:
    with serving(tmp_path, peer="10.1.2.3", **GATEWAY) as client:
        assert client.get("/whoami", headers=headers).status_code == 401  # type: ignore[arg-type]


def test_the_headers_of_a_gateway_can_have_other_names(tmp_path: Path) -> None:
    names = {"gateway_user_header": "X-Auth-User", "gateway_project_header": "X-Auth-Project"}
    with serving(tmp_path, peer="10.1.2.3", **GATEWAY, **names) as client:
        answer = client.get("/whoami", headers={"X-Auth-User": "Jürgen".encode(), "X-Auth-Project": "p"}).json()  # type: ignore[dict-item]
        assert answer["scope"] == {"user": "Jürgen", "project": "p", "session": "", "everywhere": False}
        assert client.get("/whoami", headers={"x-authz-user-id": "ann"}).status_code == 401


def test_keys_are_accepted_beside_a_gateway_only_where_that_is_said(tmp_path: Path) -> None:
    with serving(tmp_path, peer=OUTSIDE, **GATEWAY) as client:
        assert client.get("/whoami", headers=bearer(make_key(client, user="ann"))).status_code == 401
    both = {**GATEWAY, "auth": "gateway, keys"}
    with serving(tmp_path, peer=OUTSIDE, **both) as client:
        assert client.get("/whoami", headers=bearer(make_key(client, user="ann"))).json()["kind"] == "key"
    with serving(tmp_path, peer="10.1.2.3", **both) as client:
        # The key says for whom it speaks, whatever else is said.
        mixed = bearer(make_key(client, user="ann")) | {"x-authz-user-id": "bob"}
        assert client.get("/whoami", headers=mixed).status_code == 403


# Settings


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"auth": "password"}, "not one of"),
        ({"auth": ""}, "auth must be"),
        ({"auth": "off,keys"}, "auth must be"),
        ({"auth": "gateway"}, "trusted_gateways"),
        ({"auth": "gateway", "trusted_gateways": "0.0.0.0/0"}, "all addresses"),
        ({"auth": "gateway", "trusted_gateways": "::/0"}, "all addresses"),
        ({"auth": "gateway", "trusted_gateways": "10.0.0.1/8"}, "host bits"),
        ({"auth": "gateway", "trusted_gateways": "example.org"}, "trusted_gateways"),
        ({"trusted_gateways": "10.0.0.1", "gateway_user_header": "a b"}, "not a header name"),
        ({"auth": "jwt"}, "jwt_jwks_url"),
        ({"auth": "jwt", "jwt_jwks_url": "https://id.example.org/keys"}, "jwt_issuer"),
        ({"jwt_jwks_url": "https://id.example.org/keys", "jwt_issuer": "x"}, "jwt_audience"),
        ({"jwt_jwks_url": "http://id.example.org/keys", "jwt_issuer": "x", "jwt_audience": "y"}, "https"),
        ({"jwt_jwks_url": "https://169.254.169.254/x", "jwt_issuer": "x", "jwt_audience": "y"}, "name a host"),
        ({"jwt_jwks_url": "file:///etc/passwd", "jwt_issuer": "x", "jwt_audience": "y"}, "https"),
    ],
)
def test_settings_that_would_let_in_anyone_are_refused(settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidSettings, match=problem):
        load_auth_rules(Settings(**settings))


@pytest.mark.parametrize(
    ("settings", "has_keys", "starts"),
    [
        ({"host": "127.0.0.1"}, False, True),
        ({"host": "::1", "auth": "off"}, False, True),
        ({"host": "0.0.0.0"}, False, False),
        ({"host": "0.0.0.0"}, True, True),
        ({"host": "0.0.0.0", "auth": "off"}, True, False),
        ({"host": "0.0.0.0", "auth": "keys"}, False, True),
        ({"host": "0.0.0.0", "auth": "keys"}, True, True),
        ({"host": "::", "trusted_gateways": "10.0.0.1"}, False, True),
        ({"host": "example.org", "auth": "gateway", "trusted_gateways": "10.0.0.1"}, False, True),
    ],
)
def test_a_server_that_others_reach_starts_only_with_authentication(
    settings: dict[str, Any], has_keys: bool, starts: bool
) -> None:
    if starts:
        check_bind(Settings(**settings), has_keys=has_keys)
        return
    with pytest.raises(InvalidSettings, match="no authentication"):
        check_bind(Settings(**settings), has_keys=has_keys)


def test_where_others_reach_it_nobody_is_the_owner_unasked(tmp_path: Path) -> None:
    with serving(tmp_path, peer=OUTSIDE, host="0.0.0.0") as client:
        assert client.get("/whoami").status_code == 401


# Guessing


def test_who_guesses_has_to_wait_and_who_has_a_key_does_not(client: TestClient) -> None:
    key = make_key(client, user="ann")
    assert client.get("/whoami", headers=bearer(key)).status_code == 200
    statuses = [client.get("/whoami", headers=bearer(f"rk_guess{n}")).status_code for n in range(15)]
    assert statuses == [401] * 10 + [429] * 5
    refused = client.post("/v1/chat/completions", headers=bearer("rk_guess"), json={})
    assert refused.status_code == 429
    assert 1 <= int(refused.headers["retry-after"]) <= 60
    assert refused.json()["error"]["code"] == "too_many_failures"
    assert client.get("/whoami", headers=bearer(key)).status_code == 200
    # Showing nothing is no guess.
    assert client.get("/whoami").status_code == 401


def test_a_guess_that_has_to_wait_is_not_even_looked_up(client: TestClient) -> None:
    good = make_key(client, user="ann")
    for number in range(10):
        client.get("/whoami", headers=bearer(f"rk_guess{number}"))
    assert client.get("/whoami", headers=bearer(good)).status_code == 429


@pytest.mark.parametrize("auth", ["keys", "gateway, keys"])
def test_behind_a_gateway_who_guesses_is_told_apart_from_others(tmp_path: Path, auth: str) -> None:
    with serving(tmp_path, peer="10.1.2.3", auth=auth, trusted_gateways="10.1.0.0/16") as client:
        good = make_key(client, user="ann")
        for number in range(12):
            # What the client itself says of where it comes from stands before what the gateway saw.
            guess = {**bearer(f"rk_guess{number}"), "X-Forwarded-For": f"192.0.2.{number}, {OUTSIDE}"}
            last = client.get("/whoami", headers=guess).status_code
        assert last == 429
        assert client.get("/whoami", headers={**bearer(good), "X-Forwarded-For": "192.0.2.1"}).status_code == 200
    with serving(tmp_path, peer=OUTSIDE, auth=auth, trusted_gateways="10.1.0.0/16") as client:
        for number in range(12):
            guess = {**bearer(f"rk_guess{number}"), "X-Forwarded-For": f"192.0.2.{number}"}
            last = client.get("/whoami", headers=guess).status_code
        assert last == 429


def test_failures_of_others_do_not_count_and_end_with_their_window() -> None:
    moment = [0.0]
    results = Lockout(clock=lambda: moment[0])
    for _ in range(middleware._MAX_FAILURES):
        assert results.wait_s("192.0.2.1") == 0
        results.record_failure("192.0.2.1")
    assert results.wait_s("192.0.2.1") == middleware._WINDOW_S
    assert results.wait_s("192.0.2.2") == 0
    moment[0] += middleware._WINDOW_S - 1
    assert results.wait_s("192.0.2.1") == 1
    moment[0] += 1
    assert results.wait_s("192.0.2.1") == 0
    results.record_failure("192.0.2.1")
    assert results.wait_s("192.0.2.1") == 0


def test_what_is_remembered_of_failures_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(middleware, "_MAX_PEERS", 100)
    lockout = Lockout()
    for _ in range(middleware._MAX_FAILURES):
        lockout.record_failure("192.0.2.1")
    for number in range(99):
        lockout.record_failure(f"10.0.0.{number}")
    assert lockout.wait_s("192.0.2.1") > 0
    lockout.record_failure("10.0.1.1")
    assert lockout.wait_s("192.0.2.1") == 0


def test_one_customer_of_ipv6_counts_as_one() -> None:
    assert client_network("2001:db8:1:2::1") == client_network("2001:db8:1:2:ffff::9") == "2001:db8:1:2::/64"
    assert client_network("2001:db8:1:3::1") != client_network("2001:db8:1:2::1")
    assert client_network("::ffff:192.0.2.1") == client_network("192.0.2.1") == "192.0.2.1"
