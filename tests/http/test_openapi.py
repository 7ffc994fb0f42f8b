"""The OpenAPI document is complete and true, its examples are valid, and the commands in docs/rest.md run."""

from __future__ import annotations

import inspect
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import jsonschema_rs
import pytest

from recollect.config.settings import load
from recollect.http.app import API_ROUTERS, COMPAT_ROUTERS, make_app
from recollect.http.proxy.routes import RESPONSES_ROUTES as RESPONSES
from recollect.model.change import ChangeKind
from recollect.model.memory import Category
from recollect.testing.scripted_llm import ScriptedLLM
from recollect.write.extract import get_extraction_mode
from tests.support.api_server import PREFIX, served
from tests.support.paths import ROOT

HERE = ROOT / "tests" / "support"
# Building a validator takes longer than using it, and most schemas repeat.
VALIDATORS: dict[str, Any] = {}
SHELL_BLOCK = re.compile(r"^```sh\n(.*?)^```", re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    with ScriptedLLM() as llm, served(tmp_path_factory.mktemp("home"), **_with_llm(llm)) as client:
        yield client


def _with_llm(llm: ScriptedLLM) -> dict[str, str]:
    """Return settings with an LLM for the agent."""
    return {"agent_llm": "scripted", "llm_url": llm.base_url}


@pytest.fixture(scope="module")
def described(server: httpx.Client) -> dict[str, Any]:
    schema: dict[str, Any] = server.get(f"http://{server.base_url.netloc.decode()}/openapi.json").json()
    return schema


def operations(schema: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, methods in schema["paths"].items():
        for method, operation in methods.items():
            yield f"{method.upper()} {path}", operation


def answers(operation: dict[str, Any], *statuses: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the answers of an operation whose status has one of these prefixes."""
    for status, answer in operation["responses"].items():
        if status.startswith(statuses or ("",)):
            for kind, content in answer.get("content", {}).items():
                yield f"{status} {kind}", content


def check(schema: dict[str, Any], shape: dict[str, Any], value: Any) -> None:
    """Validate a value."""
    existing = json.dumps(shape)
    if existing not in VALIDATORS:
        VALIDATORS[existing] = jsonschema_rs.validator_for({**shape, "components": schema["components"]})
    VALIDATORS[existing].validate(value)


def test_every_route_is_in_the_document(described: dict[str, Any]) -> None:
    report = {name for name, _ in operations(described)}
    routes = [route for router in (*API_ROUTERS, *COMPAT_ROUTERS) for route in router.routes]
    there = {
        f"{method} {route.path}"  # type: ignore[attr-defined]
        for route in routes
        if route.include_in_schema  # type: ignore[attr-defined]
        for method in route.methods  # type: ignore[attr-defined]
    }
    spoken = {f"{method} {path}" for method, path, _ in RESPONSES}
    health = {"GET /live", "GET /health", "GET /ready", "GET /version", "GET /metrics"}
    proxy = {name for name in report if name.endswith("/v1/{path}")} | {"POST /v1/chat/completions"}
    assert report == there | spoken | health | proxy
    # No path occurs with and without a slash at its end.
    assert len(described["paths"]) == len({path.rstrip("/") for path in described["paths"]})


def test_operations_have_unique_ids_and_described_tags(described: dict[str, Any]) -> None:
    names = [operation["operationId"] for _, operation in operations(described)]
    assert len(names) == len(set(names))
    assert all(re.fullmatch("[a-z0-9_]+", name) for name in names)
    assert not [name for name in described["components"]["schemas"] if "__" in name]
    groups = {tag["name"] for tag in described["tags"] if tag["description"]}
    assert {tag for _, operation in operations(described) for tag in operation["tags"]} == groups
    assert [server["url"] for server in described["servers"]] == ["/"]


def test_parameters_answers_and_errors_are_described(described: dict[str, Any]) -> None:
    for name, operation in operations(described):
        assert operation["description"], name
        for parameter in operation.get("parameters", ()):
            assert parameter.get("description"), (name, parameter["name"])
            assert parameter.keys() & {"schema", "content"}, (name, parameter["name"])
        assert "422" not in operation["responses"], name
        if operation["tags"] != ["health"]:
            assert {"400", "401", "403", "421", "429", "500", "503"} <= set(operation["responses"]), name
        if "requestBody" in operation and "/import" not in name:
            assert "413" in operation["responses"], name
        for status, content in answers(operation):
            assert "schema" in content, (name, status)
        for status, answer in operation["responses"].items():
            if status in ("429", "503", "507") and operation["tags"] != ["health"]:
                assert "Retry-After" in answer["headers"], (name, status)


def test_errors_of_the_rest_api_have_one_schema(described: dict[str, Any]) -> None:
    for name, operation in operations(described):
        for status, content in answers(operation, "4", "5") if f" {PREFIX}" in name else ():
            assert content["schema"] == {"$ref": "#/components/schemas/Error"}, (name, status)


def test_enumerations_match_the_code(described: dict[str, Any]) -> None:
    shapes = described["components"]["schemas"]
    categories = shapes["AddMemoryBody"]["properties"]["category"]["enum"]
    assert set(categories) == set(Category) - {Category.TURN, Category.FILE}
    assert set(shapes["MemoryChangeResponse"]["properties"]["event"]["enum"]) == {*ChangeKind, "none"}
    modes = shapes["RememberBody"]["properties"]["mode"]["anyOf"][0]["enum"]
    assert all(get_extraction_mode(mode) for mode in modes)


def test_examples_are_valid(described: dict[str, Any]) -> None:
    shapes = described["components"]["schemas"]
    report = {
        name: [shape["example"]] if "example" in shape else shape["examples"]
        for name, shape in shapes.items()
        if shape.keys() & {"example", "examples"}
    }
    assert {"AddMemoryBody", "SearchBody", "NewMemory", "NewSessionMemory", "StoreFact", "Mem0Add"} <= set(report)
    for name, examples in report.items():
        for example in examples:
            check(described, {"$ref": f"#/components/schemas/{name}"}, example)


def test_every_request_body_has_an_example(described: dict[str, Any]) -> None:
    for name, operation in operations(described):
        for content in operation.get("requestBody", {}).get("content", {}).values():
            if content["schema"]:
                assert "example" in json.dumps(_resolved(described, content)), name


def _resolved(schema: dict[str, Any], part: dict[str, Any]) -> dict[str, Any]:
    """Return the part with the schemas it refers to, one step deep."""
    kinds = part.get("schema", {}).get("anyOf", [part.get("schema", {})])
    shapes = [schema["components"]["schemas"][kind["$ref"].split("/")[-1]] for kind in kinds if "$ref" in kind]
    return {"part": part, "shapes": [{name: shape[name] for name in shape if "example" in name} for shape in shapes]}


def run_schemathesis(server: httpx.Client, cwd: Path, *options: str, timeout_s: float) -> None:
    # Built by the first request, which takes longer than schemathesis waits on a loaded machine.
    server.get(f"http://{server.base_url.netloc.decode()}/openapi.json")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "schemathesis.cli", "--config-file", str(HERE / "schemathesis.toml"), "run"),
            f"http://{server.base_url.netloc.decode()}/openapi.json",
            # One worker: two of them interfere with each other.
            *("--no-color", "--warnings", "off", "--workers", "1", *options),
        ],
        env={**os.environ, "PYTHONPATH": f"{HERE}"},
        # It stores its findings there.
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-2_000:]


@pytest.mark.timeout(1800)
def test_schemathesis_finds_no_error_with_a_few_requests_to_each_route(server: httpx.Client, tmp_path: Path) -> None:
    few = ("--phases", "examples,fuzzing", "--max-examples", "1", "--generation-deterministic")
    run_schemathesis(server, tmp_path, *few, timeout_s=1700)


@pytest.mark.api
@pytest.mark.timeout(3600)
def test_schemathesis_finds_no_error(tmp_path: Path) -> None:
    with ScriptedLLM() as llm, served(tmp_path, **_with_llm(llm)) as server:
        run_schemathesis(server, tmp_path, "--max-examples", "50", timeout_s=3500)


def test_the_commands_of_the_rest_page_run(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "rest.md").read_text(encoding="utf-8")
    commands = "\n".join(SHELL_BLOCK.findall(text)).replace("curl -s", "curl --fail-with-body -sS")
    # One answer per line.
    script = "set -euo pipefail\ncurl() { command curl \"$@\" -w '\\n'; }\n" + commands
    with served(tmp_path / "home") as server:
        script = script.replace("http://127.0.0.1:8100", f"http://{server.base_url.netloc.decode()}")
        done = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    answers = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    stored, results, recalled, remembered, changed, forgotten, history, undone, *rest = answers
    listed, filtered, graph, imported, *erased = rest
    assert results["results"][0]["id"] == stored["id"]
    assert "$10,000" in recalled["context"]["text"]
    assert remembered["job"]["state"] == "done"
    assert (changed["importance"], forgotten["status"]) == (0.9, "forgotten")
    assert [line["verb"] for line in history["results"]] == ["forget", "update", "add"]
    assert undone["results"][0]["status"] == "active"
    assert stored["id"] in [each["id"] for each in listed["results"]]
    assert stored["id"] in [each["id"] for each in filtered["results"]]
    assert stored["id"] in [node["memory_id"] for node in graph["nodes"]]
    assert imported["added"] > 0
    assert [each["target"] for each in (erased[0], *erased[1]["results"])] == ["session", "session"]
    assert "event: forget" in done.stdout


def test_all_dependencies_of_routes_are_async(tmp_path: Path) -> None:
    app: Any = make_app(load({"home": tmp_path}, environ={}).settings)
    routes = [route for route in app.routes if hasattr(route, "dependant")]
    assert len(routes) > 100
    for route in routes:
        waiting = [route.dependant]
        while waiting:
            declared = waiting.pop()
            assert inspect.iscoroutinefunction(declared.call), f"{route.path}: {declared.call} is not async"
            waiting += declared.dependencies
