"""Authentication: keys, gateways, anonymous access on this machine, and lockout."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
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
from tests.support.auth_samples import HERE, OUTSIDE, app_of, bearer, make_key, serving

_ADDRESSES = count(1)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    with serving(tmp_path_factory.mktemp("home"), auth="keys") as client:
        yield client


@pytest.fixture
def client(server: TestClient) -> TestClient:
    """Return a client with an address of its own: failures are counted by address."""
    client = TestClient(server.app, client=(f"192.0.2.{next(_ADDRESSES)}", 4711), base_url=HERE)
    # It calls the running server, instead of starting another.
    client.portal = server.portal
    return client


def test_a_local_server_without_keys_needs_no_credentials(tmp_path: Path) -> None:
    with serving(tmp_path) as client:
        answer = client.get("/whoami").json()
        assert (answer["kind"], answer["admin"], answer["user"]) == ("local", True, None)
        # A key that is not ours is for the upstream.
        assert client.get("/whoami", headers=bearer("sk-somebody-elses")).status_code == 200


def test_the_first_key_ends_anonymous_access_for_good(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(tmp_path) as client:
        assert client.get("/whoami").status_code == 200
        key = make_key(client, user="ann")
        assert client.get("/whoami").status_code == 401
        assert client.get("/whoami", headers=bearer(key)).json()["user"] == "ann"
        # Revoking the last key does not restore anonymous access.
        made = client.portal.call(client.app.state.service.api_keys.list_keys)  # type: ignore[union-attr, attr-defined]
        client.portal.call(client.app.state.service.api_keys.revoke, made[0].id)  # type: ignore[union-attr, attr-defined]
        assert client.get("/whoami").status_code == 401
    with serving(tmp_path) as client:
        assert client.get("/whoami").status_code == 401


def test_with_auth_off_a_key_still_limits_its_request(tmp_path: Path) -> None:
    with serving(tmp_path, auth="off") as client:
        key = make_key(client, user="ann")
        assert client.get("/whoami").json()["kind"] == "local"
        assert client.get("/whoami", headers=bearer(key)).json()["user"] == "ann"
        assert client.get("/whoami", headers=bearer("rk_wrong")).status_code == 401


def test_a_key_is_accepted_in_every_header_that_clients_use(client: TestClient) -> None:
    key = make_key(client, user="ann", project="p", writes=False, name="phone")
    for headers in (
        {"Authorization": f"Bearer {key}"},
        {"authorization": f"bearer  {key} "},
        {"Authorization": f"Token {key}"},
        {"Authorization": key},
        {"X-API-Key": key},
        {"api-key": key},
        {"Authorization": "Bearer sk-for-the-upstream", "X-API-Key": key},
    ):
        assert client.get("/whoami", headers=headers).json() == {
            "kind": "key",
            "name": "key:phone",
            "user": "ann",
            "project": "p",
            "admin": False,
            "reads": True,
            "writes": False,
            "is_unknown": False,
            "by_cookie": False,
            "person": False,
            "is_audited": False,
            "named_project": None,
            "scope": {"user": "ann", "project": "p", "session": "", "everywhere": False},
        }


def test_a_request_without_a_key_is_rejected_with_the_remedy(client: TestClient) -> None:
    for headers in ({}, {"Authorization": ""}, {"Authorization": "Bearer"}, bearer("sk-x"), {"X-API-Key": "x"}):
        answer = client.get("/whoami", headers=headers)
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"].startswith("Bearer")
        assert answer.json()["error"]["code"] == "Unauthenticated"
        assert "recollect keys add" in answer.json()["error"]["message"]
        rejected = client.post("/v1/chat/completions", headers=headers, json={"messages": []})
        assert rejected.status_code == 401
        assert rejected.json()["error"]["type"] == "invalid_request_error"
        assert rejected.json()["error"]["code"] == "unauthenticated"


def test_health_needs_no_key_and_paths_like_it_do(client: TestClient) -> None:
    for path in ("/live", "/health", "/ready", "/version", "/openapi.json", "/docs"):
        assert client.get(path).status_code == 200
    for path in ("/live/", f"{HERE}//live", "/live/../whoami", "/LIVE", "/nothing"):
        assert client.get(path, follow_redirects=False).status_code == 401
    with pytest.raises(WebSocketDisconnect), client.websocket_connect("/anything"):
        pass


def test_a_key_of_one_user_may_not_name_another(client: TestClient) -> None:
    headers = bearer(make_key(client, user="ann"))
    assert client.get("/whoami", headers=headers, params={"user_id": "ann"}).status_code == 200
    for other in ("bob", "Ann", "ann ", "a%6En", "*", "' OR 1=1 --"):
        answer = client.get("/whoami", headers=headers, params={"user_id": other})
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "NotAllowed")
        assert other not in answer.text
    named = client.get("/whoami", headers={**headers, "x-authz-user-id": "bob"})
    assert named.status_code == 403
    assert client.get("/whoami", headers={**headers, "x-authz-user-id": "ann"}).status_code == 200


def test_a_key_of_one_project_may_not_name_another(client: TestClient) -> None:
    headers = bearer(make_key(client, user="ann", project="p"))
    assert client.get("/whoami", headers=headers).json()["scope"]["project"] == "p"
    assert client.get("/whoami", headers=headers, params={"project_id": "q"}).status_code == 403
    anyones = bearer(make_key(client, everyone=True, project="p"))
    scope = client.get("/whoami", headers=anyones, params={"user_id": "bob"}).json()["scope"]
    assert scope == {"user": "bob", "project": "p", "session": "", "everywhere": False}


def test_a_key_for_everyone_must_name_a_user(client: TestClient) -> None:
    headers = bearer(make_key(client, everyone=True))
    assert client.get("/whoami", headers=headers, params={"user_id": "bob"}).json()["scope"]["user"] == "bob"
    answer = client.get("/whoami", headers=headers)
    assert (answer.status_code, answer.json()["error"]["code"]) == (401, "MissingUser")


# Gateways

GATEWAY = {"auth": "gateway", "trusted_gateways": "10.1.0.0/16, 192.0.2.9"}


def test_only_trusted_gateways_name_the_user(tmp_path: Path) -> None:
    app = app_of(tmp_path, **GATEWAY)
    with TestClient(app):
        for peer in ("10.1.2.3", "192.0.2.9", "::ffff:10.1.2.3"):
            gateway = TestClient(app, HERE, client=(peer, 1), headers={"x-authz-user-id": "ann"})
            answer = gateway.get("/whoami").json()
            assert (answer["kind"], answer["user"], answer["admin"]) == ("gateway", "ann", False)
            assert gateway.get("/whoami", params={"user_id": "bob"}).status_code == 403
        forged = {"x-authz-user-id": "ann", "X-Forwarded-For": "10.1.2.3", "Forwarded": "for=10.1.2.3"}
        for peer in (OUTSIDE, "127.0.0.1", "10.2.0.1", "::1", "testclient", ""):
            answer = TestClient(app, HERE, client=(peer, 1), headers=forged).get("/whoami")
            assert (answer.status_code, "gateways" in answer.text) == (401, True)


def test_a_gateway_must_name_exactly_one_valid_user(tmp_path: Path) -> None:
    with serving(tmp_path, peer="10.1.2.3", **GATEWAY) as client:
        for headers in (
            [],
            [("x-authz-user-id", "")],
            [("x-authz-user-id", " ")],
            [("x-authz-user-id", "ann"), ("x-authz-user-id", "bob")],
            [("x-authz-user-id", "bob"), ("X-Authz-User-Id", "bob")],
            [("x-authz-user-id", "x" * 301)],
            [("x_authz_user_id", "ann")],
        ):
            assert client.get("/whoami", headers=headers).status_code == 401


def test_the_headers_of_a_gateway_are_configurable(tmp_path: Path) -> None:
    names = {"gateway_user_header": "X-Auth-User", "gateway_project_header": "X-Auth-Project"}
    with serving(tmp_path, peer="10.1.2.3", **GATEWAY, **names) as client:
        answer = client.get("/whoami", headers={"X-Auth-User": "Jürgen".encode(), "X-Auth-Project": "p"}).json()  # type: ignore[dict-item]
        assert answer["scope"] == {"user": "Jürgen", "project": "p", "session": "", "everywhere": False}
        assert client.get("/whoami", headers={"x-authz-user-id": "ann"}).status_code == 401


def test_keys_are_accepted_with_a_gateway_only_if_configured(tmp_path: Path) -> None:
    with serving(tmp_path, peer=OUTSIDE, **GATEWAY) as client:
        assert client.get("/whoami", headers=bearer(make_key(client, user="ann"))).status_code == 401
    both = {**GATEWAY, "auth": "gateway, keys"}
    with serving(tmp_path, peer=OUTSIDE, **both) as client:
        assert client.get("/whoami", headers=bearer(make_key(client, user="ann"))).json()["kind"] == "key"
    with serving(tmp_path, peer="10.1.2.3", **both) as client:
        # The user of the key counts.
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
def test_unsafe_auth_settings_are_rejected(settings: dict[str, Any], problem: str) -> None:
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
def test_a_public_server_starts_only_with_authentication(
    settings: dict[str, Any], has_keys: bool, starts: bool
) -> None:
    if starts:
        check_bind(Settings(**settings), has_keys=has_keys)
        return
    with pytest.raises(InvalidSettings, match="no authentication"):
        check_bind(Settings(**settings), has_keys=has_keys)


def test_a_public_server_has_no_anonymous_access(tmp_path: Path) -> None:
    with serving(tmp_path, peer=OUTSIDE, host="0.0.0.0") as client:
        assert client.get("/whoami").status_code == 401


# Guessing


def test_wrong_keys_lock_out_an_address_but_not_a_cached_key(client: TestClient) -> None:
    key = make_key(client, user="ann")
    assert client.get("/whoami", headers=bearer(key)).status_code == 200
    statuses = [client.get("/whoami", headers=bearer(f"rk_guess{n}")).status_code for n in range(15)]
    assert statuses == [401] * 10 + [429] * 5
    refused = client.post("/v1/chat/completions", headers=bearer("rk_guess"), json={})
    assert refused.status_code == 429
    assert 1 <= int(refused.headers["retry-after"]) <= 60
    assert refused.json()["error"]["code"] == "too_many_failures"
    assert client.get("/whoami", headers=bearer(key)).status_code == 200
    # A request without a key is not counted.
    assert client.get("/whoami").status_code == 401


def test_a_locked_out_address_cannot_try_new_keys(client: TestClient) -> None:
    good = make_key(client, user="ann")
    for number in range(10):
        client.get("/whoami", headers=bearer(f"rk_guess{number}"))
    assert client.get("/whoami", headers=bearer(good)).status_code == 429


@pytest.mark.parametrize("auth", ["keys", "gateway, keys"])
def test_wrong_keys_through_a_gateway_are_counted_by_client(tmp_path: Path, auth: str) -> None:
    with serving(tmp_path, peer="10.1.2.3", auth=auth, trusted_gateways="10.1.0.0/16") as client:
        good = make_key(client, user="ann")
        for number in range(12):
            # The gateway appends the address that it saw to those the client sent.
            guess = {**bearer(f"rk_guess{number}"), "X-Forwarded-For": f"192.0.2.{number}, {OUTSIDE}"}
            last = client.get("/whoami", headers=guess).status_code
        assert last == 429
        assert client.get("/whoami", headers={**bearer(good), "X-Forwarded-For": "192.0.2.1"}).status_code == 200
    with serving(tmp_path, peer=OUTSIDE, auth=auth, trusted_gateways="10.1.0.0/16") as client:
        for number in range(12):
            guess = {**bearer(f"rk_guess{number}"), "X-Forwarded-For": f"192.0.2.{number}"}
            last = client.get("/whoami", headers=guess).status_code
        assert last == 429


def test_failures_are_counted_by_address_and_window() -> None:
    moment = [0.0]
    results = Lockout(clock=lambda: moment[0])
    for _ in range(middleware.MAX_FAILURES):
        assert results.wait_s("192.0.2.1") == 0
        results.record_failure("192.0.2.1")
    assert results.wait_s("192.0.2.1") == middleware.WINDOW_S
    assert results.wait_s("192.0.2.2") == 0
    moment[0] += middleware.WINDOW_S - 1
    assert results.wait_s("192.0.2.1") == 1
    moment[0] += 1
    assert results.wait_s("192.0.2.1") == 0
    results.record_failure("192.0.2.1")
    assert results.wait_s("192.0.2.1") == 0


def test_the_number_of_counted_addresses_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(middleware, "MAX_PEERS", 100)
    lockout = Lockout()
    for _ in range(middleware.MAX_FAILURES):
        lockout.record_failure("192.0.2.1")
    for number in range(99):
        lockout.record_failure(f"10.0.0.{number}")
    assert lockout.wait_s("192.0.2.1") > 0
    lockout.record_failure("10.0.1.1")
    assert lockout.wait_s("192.0.2.1") == 0


def test_an_ipv6_network_counts_as_one_client() -> None:
    assert client_network("2001:db8:1:2::1") == client_network("2001:db8:1:2:ffff::9") == "2001:db8:1:2::/64"
    assert client_network("2001:db8:1:3::1") != client_network("2001:db8:1:2::1")
    assert client_network("::ffff:192.0.2.1") == client_network("192.0.2.1") == "192.0.2.1"


# Reverse proxies

PROXY_HEADERS = ("X-Forwarded-For", "Forwarded", "X-Real-IP", "Via", "X-Forwarded-Proto", "CF-Connecting-IP")


@pytest.mark.parametrize("auth", ["auto", "off"])
def test_without_authentication_nobody_behind_a_reverse_proxy_is_the_owner(tmp_path: Path, auth: str) -> None:
    with serving(tmp_path, auth=auth) as client:
        assert client.get("/whoami").json()["admin"] is True
        for header in PROXY_HEADERS:
            answer = client.get("/whoami", headers={header: "192.0.2.7"})
            assert (answer.status_code, answer.json()["error"]["code"]) == (403, "NotAllowed")
            for remedy in (header.lower(), "recollect keys add", "trusted_gateways", "allow_anonymous_proxy"):
                assert remedy in answer.json()["error"]["message"]
            chat = client.post("/v1/chat/completions", headers={header: "x"}, json={"messages": []})
            assert chat.status_code == 403
            assert client.get("/live", headers={header: "192.0.2.7"}).status_code == 200
        key = make_key(client, user="ann")
        assert client.get("/whoami", headers={**bearer(key), "Via": "1.1 proxy"}).json()["user"] == "ann"


def test_a_setting_allows_a_reverse_proxy_without_authentication(tmp_path: Path) -> None:
    with serving(tmp_path, allow_anonymous_proxy=True) as client:
        assert client.get("/whoami", headers={"X-Forwarded-For": "192.0.2.7"}).json()["admin"] is True
