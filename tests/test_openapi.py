"""The description of the API is complete and true, the page to try it works offline, and the examples run."""

from __future__ import annotations

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
from own_api import PREFIX, served

from recollect.http.doors.own.routes import own_routes
from recollect.model.change import Verb
from recollect.model.memory import Category
from recollect.write.extraction.prompt import style_of

HERE = Path(__file__).parent
SHELL_BLOCK = re.compile(r"^```sh\n(.*?)^```", re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    with served(tmp_path_factory.mktemp("home")) as client:
        yield client


@pytest.fixture(scope="module")
def described(server: httpx.Client) -> dict[str, Any]:
    schema: dict[str, Any] = server.get(f"http://{server.base_url.netloc.decode()}/openapi.json").json()
    return schema


def operations(schema: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, methods in schema["paths"].items():
        for method, operation in methods.items():
            if path.startswith(PREFIX):
                yield f"{method.upper()} {path}", operation


def test_every_route_is_described(described: dict[str, Any]) -> None:
    told = {name for name, _ in operations(described)}
    there = {f"{method} {route.path}" for route in own_routes() for method in route.methods}  # type: ignore[attr-defined]
    assert told == there
    assert "/v1/chat/completions" in described["paths"]


def test_every_parameter_answer_and_error_is_described(described: dict[str, Any]) -> None:
    names = [operation["operationId"] for _, operation in operations(described)]
    assert len(names) == len(set(names))
    for name, operation in operations(described):
        assert operation["description"], name
        for parameter in operation.get("parameters", ()):
            assert parameter["in"] == "path" or parameter.get("description") or parameter["name"] == "order", (
                name,
                parameter["name"],
            )
        assert "422" not in operation["responses"], name
        assert {"400", "401", "403", "429", "500", "503"} <= set(operation["responses"]), name
        for status, answer in operation["responses"].items():
            [content] = answer["content"].values()
            assert content["schema"], (name, status)
            if status >= "400":
                assert content["schema"]["$ref"].endswith("/Error")
                assert content["example"]["error"]["message"]
            if status in ("429", "503", "507"):
                assert "Retry-After" in answer["headers"]


def test_words_that_are_listed_are_those_there_are(described: dict[str, Any]) -> None:
    shapes = described["components"]["schemas"]
    assert set(shapes["NewOne"]["properties"]["category"]["enum"]) == set(Category) - {Category.TURN}
    assert set(shapes["Changed"]["properties"]["event"]["enum"]) == {*Verb, "none"}
    assert set(shapes["EntryTold"]["properties"]["verb"]["enum"]) == set(Verb)
    modes = shapes["Said"]["properties"]["mode"]["anyOf"][0]["enum"]
    assert all(style_of(mode) for mode in modes)


def test_every_example_of_a_shape_is_one(described: dict[str, Any]) -> None:
    shapes = described["components"]["schemas"]
    named = {name: shape["example"] for name, shape in shapes.items() if "example" in shape}
    assert {"Memory", "Found", "NewOne", "JobTold"} <= set(named)
    for name, example in named.items():
        pointed = {"$ref": f"#/components/schemas/{name}", "components": {"schemas": shapes}}
        jsonschema_rs.validate(pointed, example)


def test_every_body_has_an_example(described: dict[str, Any]) -> None:
    for name, operation in operations(described):
        for content in operation.get("requestBody", {}).get("content", {}).values():
            assert "example" in json.dumps(_resolved(described, content)), name


def _resolved(schema: dict[str, Any], part: dict[str, Any]) -> dict[str, Any]:
    """The part with the shape it points at, one step deep."""
    kinds = part.get("schema", {}).get("anyOf", [part.get("schema", {})])
    shapes = [schema["components"]["schemas"][kind["$ref"].split("/")[-1]] for kind in kinds if "$ref" in kind]
    return {"part": part, "shapes": [shape.get("example") and {"example": shape["example"]} for shape in shapes]}


def run_schemathesis(server: httpx.Client, cwd: Path, *options: str, timeout_s: float) -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "schemathesis.cli", "--config-file", str(HERE / "schemathesis.toml"), "run"),
            f"http://{server.base_url.netloc.decode()}/openapi.json",
            *("--no-color", "--warnings", "off", "--workers", "2", *options),
        ],
        env={**os.environ, "PYTHONPATH": f"{HERE}"},
        # It keeps what it found for the next time.
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-2_000:]


@pytest.mark.timeout(300)
def test_schemathesis_finds_nothing_in_a_few_requests_to_each_route(server: httpx.Client, tmp_path: Path) -> None:
    few = ("--phases", "examples,fuzzing,stateful", "--max-examples", "4", "--generation-deterministic")
    run_schemathesis(server, tmp_path, *few, timeout_s=280)


@pytest.mark.api
@pytest.mark.timeout(3600)
def test_schemathesis_finds_nothing(tmp_path: Path) -> None:
    with served(tmp_path) as server:
        run_schemathesis(server, tmp_path, "--max-examples", "50", timeout_s=3500)


def test_the_page_takes_everything_from_here(server: httpx.Client) -> None:
    root = f"http://{server.base_url.netloc.decode()}"
    page = server.get(f"{root}/docs")
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'; script-src 'self';" in policy
    assert "<script>" not in page.text
    assert "://" not in page.text
    for path in re.findall(r'(?:src|href)="(/[^"]+)"', page.text):
        part = server.get(f"{root}{path}")
        assert part.status_code == 200, path
        assert part.headers["content-type"].startswith(("text/javascript", "text/css")), path
        assert len(part.content) > 100
    assert server.get(f"{root}/redoc").status_code == 404


def test_the_commands_of_the_document_run(tmp_path: Path) -> None:
    text = (HERE.parent / "docs" / "rest.md").read_text(encoding="utf-8")
    commands = "\n".join(SHELL_BLOCK.findall(text)).replace("curl -s", "curl --fail-with-body -sS")
    # An answer a line, so that each can be looked at.
    script = "set -euo pipefail\ncurl() { command curl \"$@\" -w '\\n'; }\n" + commands
    with served(tmp_path / "home") as server:
        script = script.replace("http://127.0.0.1:8100", f"http://{server.base_url.netloc.decode()}")
        done = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    answers = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    kept, found, recalled, remembered, changed, forgotten, history, undone, listed, filtered, imported, *erased = (
        answers
    )
    assert found["results"][0]["id"] == kept["id"]
    assert "$10,000" in recalled["context"]["text"]
    assert remembered["job"]["state"] == "done"
    assert (changed["importance"], forgotten["status"]) == (0.9, "forgotten")
    assert [line["verb"] for line in history["results"]] == ["forget", "update", "add"]
    assert undone["results"][0]["status"] == "active"
    assert kept["id"] in [each["id"] for each in listed["results"]]
    assert kept["id"] in [each["id"] for each in filtered["results"]]
    assert imported["added"] > 0
    assert [each["target"] for each in (erased[0], *erased[1]["results"])] == ["session", "session"]
    assert "event: forget" in done.stdout
