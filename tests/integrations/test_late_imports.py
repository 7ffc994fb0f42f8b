"""The frameworks are needed by who uses them, and by nobody else."""

from __future__ import annotations

import subprocess
import sys

import pytest

FRAMEWORKS = [
    ("pydantic_ai", "pydantic_ai", "pydantic-ai"),
    ("langgraph", "langgraph", "langgraph"),
    ("openai_agents", "agents", "openai-agents"),
    ("anthropic", "anthropic", "anthropic"),
]


def run_python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.parametrize(("module", "framework", "extra"), FRAMEWORKS)
def test_without_the_framework_one_is_told_how_to_install_it(module: str, framework: str, extra: str) -> None:
    report = run_python(
        "import sys\n"
        f"sys.modules[{framework!r}] = None\n"
        "from recollect.errors import MissingExtra\n"
        "try:\n"
        f"    import recollect.integrations.{module}\n"
        "except MissingExtra as error:\n"
        "    print(error)\n"
    )
    assert report.endswith(f"pip install 'recollect[{extra}]'")


def test_a_memory_loads_none_of_the_frameworks() -> None:
    loaded = run_python(
        "import sys, recollect, recollect.integrations.common, recollect.integrations.common\nprint(*sys.modules)"
    ).split()
    assert "recollect.sync" in loaded
    assert not {framework for _, framework, _ in FRAMEWORKS} & set(loaded)
