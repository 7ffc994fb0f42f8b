"""Every example in the documents runs, and every link in them leads somewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from anthropic_endpoint import endpoint

from recollect.testing.scripted_llm import ScriptedLLM

ROOT = Path(__file__).parent.parent
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]
EXAMPLES = sorted((ROOT / "examples").glob("[0-9]*.py"))
PYTHON_BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(([^)#]+)(?:#[^)]*)?\)")


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


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_every_link_in_a_document_leads_somewhere(path: Path) -> None:
    links = LINK.findall(path.read_text(encoding="utf-8"))
    missing = [link for link in links if "://" not in link and not (path.parent / link).exists()]
    assert not missing
