"""Every route answers errors and authenticates as the OpenAPI document says."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from fastapi.testclient import TestClient
from httpx import Response

from tests.support.auth_samples import HERE, bearer, make_key, serving

LOCAL = {"host": "127.0.0.1"}
# Building a validator takes longer than using it, and most schemas repeat.
VALIDATORS: dict[str, Any] = {}


def described(client: TestClient) -> dict[str, Any]:
    schema: dict[str, Any] = client.get("/openapi.json").json()
    return schema


@pytest.fixture(scope="module")
def schema(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The document of a server with keys; building it takes longer than these tests."""
    with serving(tmp_path_factory.mktemp("home"), auth="keys") as client:
        return described(client)


def operations(schema: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in schema["paths"].items():
        for method, operation in methods.items():
            if path != "/whoami":
                yield method, path, operation


def ask(client: TestClient, method: str, path: str, **more: Any) -> Response:
    """Send a request without parameters, with a value for each parameter of the path."""
    for name in (
        "memory_id",
        "memoryId",
        "sessionId",
        "response_id",
        "conversation_id",
        "item_id",
        "job_id",
        "key_id",
        "recall_id",
        "path",
    ):
        path = path.replace(f"{{{name}}}", "models" if name == "path" else "some")
    return client.request(method, path.replace("{kind}", "user").replace("{name}", "alex"), **more)


def check(schema: dict[str, Any], operation: dict[str, Any], answer: Response) -> None:
    """Validate an answer against the document."""
    [content] = operation["responses"][str(answer.status_code)]["content"].values()
    shape = json.dumps(content["schema"])
    if shape not in VALIDATORS:
        VALIDATORS[shape] = jsonschema_rs.validator_for({**content["schema"], "components": schema["components"]})
    VALIDATORS[shape].validate(answer.json())


def test_a_request_without_credentials_is_answered_as_documented(tmp_path: Path, schema: dict[str, Any]) -> None:
    with serving(tmp_path, auth="keys") as client:
        for method, path, operation in operations(schema):
            answer = ask(client, method, path)
            if operation["security"]:
                assert operation["security"] == [{"key": []}, {"key_header": []}]
                assert answer.status_code == 401, (method, path)
                assert answer.headers["www-authenticate"].startswith("Bearer")
                check(schema, operation, answer)
            else:
                # Without a body nobody can log in.
                expected = {"/recollect/v1/login": 400, "/recollect/v1/logout": 204}.get(path, 200)
                assert answer.status_code == expected, (method, path)


def test_foreign_hosts_large_bodies_and_too_many_requests_are_answered_as_documented(
    tmp_path: Path, schema: dict[str, Any]
) -> None:
    with serving(tmp_path, max_body_mb=1) as client:
        for method, path, operation in operations(schema):
            answer = ask(client, method, path, headers={"Host": "evil.example"})
            assert answer.status_code == 421, (method, path)
            check(schema, operation, answer)
            if "requestBody" in operation and path != "/recollect/v1/import":
                answer = ask(client, method, path, content=b" " * ((1 << 20) + 1))
                assert answer.status_code == 413, (method, path)
                check(schema, operation, answer)
    with serving(tmp_path, rate_limit_per_minute=1) as client:
        client.get("/whoami")
        for method, path, operation in operations(schema):
            if operation["tags"] != ["health"]:
                answer = ask(client, method, path)
                assert answer.status_code == 429, (method, path)
                assert int(answer.headers["retry-after"]) > 0
                check(schema, operation, answer)


@pytest.mark.parametrize("right", ["reads", "writes"])
def test_a_key_without_a_permission_is_answered_as_documented(
    tmp_path: Path, schema: dict[str, Any], right: str
) -> None:
    with serving(tmp_path, auth="keys") as client:
        key = make_key(client, user="alex", **{right: False})
        refused = set()
        for method, path, operation in operations(schema):
            if operation["tags"] not in (["proxy"], ["health"]) and path != "/recollect/v1/changes":
                answer = ask(client, method, path, headers=bearer(key))
                assert str(answer.status_code) in operation["responses"], (method, path, answer.text)
                if answer.status_code == 403:
                    refused.add(operation["operationId"])
                    check(schema, operation, answer)
    expected = {"list_memories", "memory_get_memory", "mem0_get"} if right == "reads" else {"undo", "mem0_update"}
    assert expected <= refused


def test_the_documented_credentials_are_those_accepted(tmp_path: Path) -> None:
    def ways(**settings: Any) -> list[dict[str, Any]]:
        with serving(tmp_path, **settings) as client:
            schema = described(client)
        named: list[dict[str, Any]] = schema["paths"]["/v1/memory"]["get"]["security"]
        assert {name for way in named for name in way} <= set(schema["components"]["securitySchemes"])
        return named

    key: list[dict[str, Any]] = [{"key": []}, {"key_header": []}]
    assert ways() == [{}, *key]
    assert ways(auth="gateway", trusted_gateways="10.1.0.0/16") == [{"gateway": []}]
    tokens = {"jwt_jwks_url": f"{HERE}/keys", "jwt_issuer": "us", "jwt_audience": "us"}
    assert ways(auth="keys,jwt", **tokens) == [*key, {"token": []}]


def test_unknown_paths_and_methods_are_answered_in_the_format_of_the_api(
    tmp_path: Path, schema: dict[str, Any]
) -> None:
    with serving(tmp_path) as client:
        assert client.get("/v1/memory/a/b").json()["error"]["code"] == "NOT_FOUND"
        refused = client.delete("/api/react/facts/store").json()["error"]
        assert refused["type"] == "MethodNotAllowed"
        assert refused["message"] == "Method DELETE is not allowed here; use POST"
        assert client.put("/v1/memory").json()["error"]["code"] == "METHOD_NOT_ALLOWED"
        assert client.put("/v1/responses").json()["error"]["code"] == "method_not_allowed"
        for path, hint in {
            "/nothing": "/docs lists all paths",
            "/remember": "did you mean /recollect/v1/remember? /docs lists all paths",
            "/recollect/v1/memorys": "did you mean /recollect/v1/memories? /docs lists all paths",
        }.items():
            assert client.get(path).json()["error"]["message"] == f"GET {path} does not exist; {hint}"
        wrong = client.patch("/memories")
        assert (wrong.status_code, set(wrong.json())) == (405, {"detail"})
        assert {"GET", "POST", "DELETE"} <= set(wrong.headers["allow"].split(", "))
        report = 0
        for path, operations in schema["paths"].items():
            answer = client.request("OPTIONS", re.sub(r"\{\w+\}", "x", path))
            if answer.status_code == 405:
                report += 1
                there = {method.upper() for method in operations if method != "parameters"}
                assert set(answer.headers["allow"].split(", ")) - {"HEAD"} == there, path
    assert report > 40
