"""Every example in the documents runs, and every link in them leads somewhere."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from recollect.cli.registry import COMMANDS
from recollect.testing.scripted_llm import ScriptedLLM
from scripts.print_docs import PAGES, cli_page, python_page, rest_page
from tests.support.anthropic_server import endpoint
from tests.support.compat_server import served

ROOT = Path(__file__).parent.parent
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]
EXAMPLES = sorted((ROOT / "examples").glob("[0-9]*.py"))
PYTHON_BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
CODE_BLOCK = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(([^)#\s]*)(?:#([^)]*))?\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def run(code: str, home: Path, **environment: str) -> str:
    environ = {**os.environ, "RECOLLECT_HOME": str(home), **environment}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        env=environ,
        cwd=home,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("path", [*DOCUMENTS, *EXAMPLES], ids=lambda path: path.name)
def test_the_python_in_a_document_runs(path: Path, tmp_path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    code = text if path.suffix == ".py" else "\n".join(PYTHON_BLOCK.findall(text))
    if path.suffix == ".py":
        assert len(text.splitlines()) <= 40
    if path.name == "frameworks.md":
        # Its agents ask a model, and one of the frameworks would tell its makers about that.
        with ScriptedLLM() as llm, endpoint() as address:
            keys = {"OPENAI_API_KEY": "-", "ANTHROPIC_API_KEY": "-", "OPENAI_AGENTS_DISABLE_TRACING": "1"}
            printed = run(code, tmp_path, OPENAI_BASE_URL=llm.base_url, ANTHROPIC_BASE_URL=address, **keys)
            requests = [request.text for request in llm.requests]
        assert "/memories/notes.md we fly to Oahu on 3 May" in printed
        for content, question in (
            ("$10,000", "How much can I spend in Hawaii?"),
            ("peanuts", "What must I not eat?"),
        ):
            assert any(question in each and content in each for each in requests)
    else:
        run(code, tmp_path)


def test_the_readme_example_prints_what_it_should(tmp_path: Path) -> None:
    [code] = PYTHON_BLOCK.findall((ROOT / "README.md").read_text(encoding="utf-8"))
    assert run(code, tmp_path).strip() == "The budget for the Hawaii trip is $10,000"


def anchors(path: Path) -> set[str]:
    """Return the anchors of a page's headings, as MkDocs and GitHub make them."""
    headings = HEADING.findall(CODE_BLOCK.sub("", path.read_text(encoding="utf-8")))
    return {re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower()) for heading in headings}


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_every_link_in_a_document_leads_somewhere(path: Path) -> None:
    for link, anchor in LINK.findall(CODE_BLOCK.sub("", path.read_text(encoding="utf-8"))):
        if "://" in link:
            continue
        target = (path.parent / link).resolve() if link else path
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), f"{link}#{anchor}"
        # A page of the site cannot link to files outside of it.
        assert path.parent != ROOT / "docs" or target.is_relative_to(ROOT / "docs"), link


def test_the_files_named_in_the_architecture_exist() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    names = set(re.findall(r"`([a-z_]+(?:/[a-z_0-9]*)*(?:\.\w+)?)`", text))
    paths = [name for name in names if "/" in name or name.endswith(".py")]
    assert len(paths) > 50
    assert not [name for name in paths if not any((root / name).exists() for root in (ROOT, ROOT / "src/recollect"))]


def pages_in(nav: list[dict[str, object]]) -> list[str]:
    """Return the files that a part of the navigation lists, in order."""
    pages: list[str] = []
    for entry in nav:
        for target in entry.values():
            pages += [target] if isinstance(target, str) else pages_in(target)
    return pages


def test_the_navigation_lists_every_page_of_the_site_once() -> None:
    config = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    files = [str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")]
    assert sorted(pages_in(config["nav"])) == sorted([*files, *PAGES])


def test_the_site_loads_nothing_from_other_sites() -> None:
    config = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    assert (config["theme"]["font"], config["plugins"]) == (False, ["search"])


def test_the_generated_reference_is_complete() -> None:
    assert all(f"## recollect {command}\n" in cli_page() for command in COMMANDS)
    assert all(f"### Memory.{name}\n" in python_page() for name in ("add", "search", "recall", "remember"))
    assert not re.search(r" at 0x|&lt;|<\w+\.", python_page())
    assert "| `POST` | `/recollect/v1/search` |" in rest_page()


DOCUMENT = ROOT / "docs" / "services.md"
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
