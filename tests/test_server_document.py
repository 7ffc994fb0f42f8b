"""The requests in the document of the server can be sent as they stand there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from door_samples import served

DOCUMENT = Path(__file__).parent.parent / "docs" / "services.md"
SHELL = re.compile(r"^```sh\n(.*?)^```", re.DOTALL | re.MULTILINE)
HOST = "http://127.0.0.1:8100"


def requests() -> list[dict[str, Any]]:
    """Every curl command of the document as a request."""
    results = []
    for block in SHELL.findall(DOCUMENT.read_text(encoding="utf-8")):
        for command in re.split(r"^(?=curl )", block, flags=re.MULTILINE):
            if command.startswith("curl "):
                results.append(read(shlex.split(command)[1:]))
    return results


def read(words: list[str]) -> dict[str, Any]:
    options = {"-X": "method", "-H": "header", "-d": "content"}
    reports: dict[str, Any] = {}
    rest = iter(words)
    for word in rest:
        reports[options.get(word, "url")] = next(rest) if word in options else word
    name, _, value = reports.pop("header", "accept: */*").partition(": ")
    method = reports.pop("method", "POST" if "content" in reports else "GET")
    return {**reports, "url": reports["url"].removeprefix(HOST), "method": method, "headers": {name: value}}


def test_every_request_of_the_document_is_answered(tmp_path: Path) -> None:
    query = requests()
    assert len(query) == 12
    with served(tmp_path) as client:
        for request in query:
            answer = client.request(**request)
            assert answer.is_success, (request, answer.text)
            if "search" in request["url"]:
                assert "$10,000" in answer.text
            if "retrieve" in request["url"] or "relevant" in request["url"]:
                assert ("8443" in answer.text) or ("detailed explanations" in answer.text)


@pytest.mark.parametrize("url", ["/v1/memory", "/api/sessions", "/api/react/facts/store", "/v3/memories/add/"])
def test_every_family_of_the_document_is_in_openapi(tmp_path: Path, url: str) -> None:
    with served(tmp_path) as client:
        assert url in client.get("/openapi.json").json()["paths"]
