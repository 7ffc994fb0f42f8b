"""A framework is imported only by its integration."""

from __future__ import annotations

import subprocess
import sys

FRAMEWORKS = [
    ("pydantic_ai", "pydantic_ai", "pydantic-ai"),
    ("langgraph", "langgraph", "langgraph"),
    ("openai_agents", "agents", "openai-agents"),
    ("anthropic", "anthropic", "anthropic"),
    ("crewai", "crewai", "crewai"),
    ("google_adk", "google.adk", "google-adk"),
    ("llama_index", "llama_index", "llama-index"),
]


def run_python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_a_missing_framework_is_reported_with_its_extra() -> None:
    printed = run_python(
        "import sys\n"
        "from importlib import import_module\n"
        "from recollect.errors import MissingExtra\n"
        f"for module, framework, _ in {FRAMEWORKS!r}:\n"
        "    sys.modules[framework] = None\n"
        "    try:\n"
        "        import_module(f'recollect.integrations.{module}')\n"
        "    except MissingExtra as error:\n"
        "        print(error)\n"
    )
    for line, (_, _, extra) in zip(printed.splitlines(), FRAMEWORKS, strict=True):
        assert line.endswith(f"pip install 'recollect[{extra}]'")


def test_a_memory_loads_none_of_the_frameworks() -> None:
    loaded = run_python("import sys, recollect, recollect.integrations.common\nprint(*sys.modules)").split()
    assert "recollect.sync" in loaded
    assert not {framework for _, framework, _ in FRAMEWORKS} & set(loaded)
