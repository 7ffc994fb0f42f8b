"""Every example in the documents runs, and every link in them has a target."""

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

from recollect import Memory
from recollect.cli.main import COMMANDS
from recollect.testing.scripted_llm import ScriptedLLM
from scripts.print_docs import PAGES, cli_page, python_page, rest_page
from tests.support.anthropic_server import endpoint
from tests.support.compat_server import served
from tests.support.doc_code import CLIENT_SECTIONS, FRAMEWORKS_PAGE, section_code

ROOT = Path(__file__).parent.parent
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
EXAMPLES = sorted((ROOT / "examples").glob("[0-9]*.py"))
PYTHON_BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
CODE_BLOCK = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(([^)#\s]*)(?:#([^)]*))?\)")
PYTHON_FILE = re.compile(r"(?<![\w/.{}*-])(?:\w+/)*\w+\.py\b")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


# Two have tests of their own, which run them in another process.
IN_PROCESS = [path for path in [*DOCUMENTS, *EXAMPLES] if path.name not in ("README.md", "frameworks.md")]


def python_of(path: Path) -> str:
    """Return the Python code in a document, or of an example."""
    text = path.read_text(encoding="utf-8")
    return text if path.suffix == ".py" else "\n".join(PYTHON_BLOCK.findall(text))


@pytest.mark.parametrize("path", [path for path in IN_PROCESS if python_of(path)], ids=lambda path: path.name)
def test_the_python_in_a_document_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RECOLLECT_HOME", str(tmp_path))
    namespace: dict[str, Any] = {"__name__": "__main__"}
    try:
        exec(compile(python_of(path), path.name, "exec"), namespace)
    finally:
        for value in namespace.values():
            if isinstance(value, Memory):
                value.close()


def run_in_process(code: str, home: Path, **environment: str) -> str:
    """Run the Python of a document in another process; return its output."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        env={**os.environ, "RECOLLECT_HOME": str(home), **environment},
        cwd=home,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_readme_example_prints_what_it_should(tmp_path: Path) -> None:
    assert run_in_process(python_of(ROOT / "README.md"), tmp_path) == "The budget for the Hawaii trip is $10,000\n"


def test_the_python_for_agent_frameworks_runs(tmp_path: Path) -> None:
    # Its agents call a model, and one of the frameworks would send traces to its makers.
    with ScriptedLLM() as llm, endpoint() as address:
        keys = {"OPENAI_API_KEY": "-", "ANTHROPIC_API_KEY": "-", "OPENAI_AGENTS_DISABLE_TRACING": "1"}
        sections = section_code(FRAMEWORKS_PAGE, "python")
        code = "\n".join(code for heading, code in sections.items() if heading not in CLIENT_SECTIONS)
        printed = run_in_process(code, tmp_path, OPENAI_BASE_URL=llm.base_url, ANTHROPIC_BASE_URL=address, **keys)
        requests = [request.text for request in llm.requests]
    assert "/memories/notes.md we fly to Oahu on 3 May" in printed
    for content, question in (("$10,000", "How much can I spend in Hawaii?"), ("peanuts", "What must I not eat?")):
        assert any(question in each and content in each for each in requests)


def test_examples_are_short() -> None:
    assert all(len(path.read_text(encoding="utf-8").splitlines()) <= 40 for path in EXAMPLES)


def anchors(path: Path) -> set[str]:
    """Return the anchors of a page's headings, as MkDocs and GitHub make them."""
    headings = HEADING.findall(CODE_BLOCK.sub("", path.read_text(encoding="utf-8")))
    return {re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower()) for heading in headings}


def test_every_link_in_a_document_has_a_target() -> None:
    for path in DOCUMENTS:
        for link, anchor in LINK.findall(CODE_BLOCK.sub("", path.read_text(encoding="utf-8"))):
            if "://" in link:
                continue
            target = (path.parent / link).resolve() if link else path
            assert target.exists(), (path, link)
            assert not anchor or anchor in anchors(target), f"{path}: {link}#{anchor}"
            # A page of the site cannot link to files outside of it.
            assert path.parent != ROOT / "docs" or target.is_relative_to(ROOT / "docs"), (path, link)


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
    cli, python, rest = cli_page(), python_page(), rest_page()
    assert all(f"## recollect {command}\n" in cli for command in COMMANDS)
    assert all(f"### Memory.{name}\n" in python for name in ("add", "search", "recall", "remember"))
    assert not re.search(r" at 0x|&lt;|<\w+\.", python)
    assert "| `POST` | `/recollect/v1/search` |" in rest


SERVICES = ROOT / "docs" / "services.md"
SHELL = re.compile(r"^```sh\n(.*?)^```", re.DOTALL | re.MULTILINE)
HOST = "http://127.0.0.1:8100"


def requests() -> list[dict[str, Any]]:
    """Return every curl command of the document as a request."""
    results = []
    for block in SHELL.findall(SERVICES.read_text(encoding="utf-8")):
        for command in re.split(r"^(?=curl )", block, flags=re.MULTILINE):
            if command.startswith("curl "):
                results.append(parse_curl(shlex.split(command)[1:]))
    return results


def parse_curl(words: list[str]) -> dict[str, Any]:
    options = {"-X": "method", "-H": "header", "-d": "content"}
    request: dict[str, Any] = {}
    rest = iter(words)
    for word in rest:
        request[options.get(word, "url")] = next(rest) if word in options else word
    name, _, value = request.pop("header", "accept: */*").partition(": ")
    method = request.pop("method", "POST" if "content" in request else "GET")
    return {**request, "url": request["url"].removeprefix(HOST), "method": method, "headers": {name: value}}


def test_every_request_in_the_page_of_compatible_apis_succeeds(tmp_path: Path) -> None:
    all_requests = requests()
    assert len(all_requests) == 12
    with served(tmp_path) as client:
        for request in all_requests:
            answer = client.request(**request)
            assert answer.is_success, (request, answer.text)
            if "search" in request["url"]:
                assert "$10,000" in answer.text
            if "retrieve" in request["url"] or "relevant" in request["url"]:
                assert ("8443" in answer.text) or ("detailed explanations" in answer.text)


def test_every_python_file_that_is_mentioned_exists() -> None:
    folders = ("src", "tests", "evals", "benchmarks", "scripts", "examples")
    files = [path.relative_to(ROOT).parts for folder in folders for path in (ROOT / folder).rglob("*.py")]
    existing = {"/".join(parts[at:]) for parts in files for at in range(len(parts))}
    texts = [path for folder in ("src", "evals", "scripts") for path in (ROOT / folder).rglob("*.*")]
    texts = [path for path in texts if path.suffix in (".py", ".md", ".sql", ".toml")]
    texts += [*DOCUMENTS, *(ROOT / "tests").rglob("*.md")]
    stale = {
        path.relative_to(ROOT).as_posix(): missing
        for path in texts
        if (missing := set(PYTHON_FILE.findall(path.read_text(encoding="utf-8"))) - existing)
    }
    assert not stale
