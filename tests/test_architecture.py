"""The shape of the package: imports point one way, the public names are exactly those promised."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import recollect

SOURCE = Path(recollect.__file__).parent

# Outermost first. A module may import from its own layer and from those below it.
LAYERS = [
    ["__main__"],
    ["testing"],
    ["cli"],
    ["evaluation"],
    ["http", "integrations", "sync"],
    ["agent", "restoring"],
    ["api"],
    ["api_care", "api_move"],
    ["api_open"],
    ["warm", "exchange"],
    ["wiring"],
    ["sharing", "model_choice", "indexing"],
    ["mirror"],
    ["service"],
    ["care", "keyring", "moving", "files"],
    ["erasing", "reviewing", "learning_model"],
    ["remember", "recall"],
    ["movein"],
    ["conversation", "upkeep"],
    ["read", "write"],
    ["index", "shared"],
    ["ledger"],
    ["models"],
    ["settings", "settings_page", "presets", "prompts"],
    ["settings_declared"],
    ["settings_operation", "settings_auth", "settings_agent", "settings_index"],
    ["settings_server"],
    ["text"],
    ["language"],
    ["model"],
    ["observe"],
    ["errors"],
]
DEPTH = {name: depth for depth, names in enumerate(LAYERS) for name in names}


def modules() -> list[Path]:
    return sorted(path for path in SOURCE.rglob("*.py") if path.parent != SOURCE or path.stem != "__init__")


def layer_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imports(path: Path) -> set[str]:
    """The parts of the package that a module imports, wherever in the file it does."""
    results = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        results |= {name.split(".")[1] for name in names if name.startswith("recollect.")}
    return results & DEPTH.keys()


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_point_from_the_doors_inwards(path: Path) -> None:
    own = layer_of(path)
    assert own in DEPTH, f"{own} has no layer; give it one in LAYERS"
    wrong = {name for name in imports(path) if DEPTH[name] < DEPTH[own]}
    assert not wrong, f"{path.relative_to(SOURCE)} reaches outwards to {sorted(wrong)}"


def test_every_public_name_can_be_had_and_no_other() -> None:
    for name in recollect.__all__:
        assert getattr(recollect, name) is not None
    assert dir(recollect) == sorted(recollect.__all__)
    with pytest.raises(AttributeError):
        recollect.Nonsense  # noqa: B018


def run_python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_importing_the_package_loads_nothing_heavy() -> None:
    heavy = {"numpy", "apsw", "pydantic", "fastapi", "uvicorn", "httpx", "tokenizers", "click", "asyncpg"}
    loaded = run_python("import sys, recollect; recollect.Memory(); print(' '.join(sys.modules))").split()
    assert not heavy & set(loaded)


def test_only_the_settings_read_the_environment() -> None:
    readers = {
        str(path.relative_to(SOURCE))
        for path in modules()
        if "os.environ" in path.read_text(encoding="utf-8") or "getenv" in path.read_text(encoding="utf-8")
    }
    # The command line also sets how many threads numpy may use, before numpy is imported.
    assert readers <= {"settings.py", "cli/main.py"}


def test_no_file_grows_beyond_what_one_can_read() -> None:
    long = {path.name: lines for path in modules() if (lines := len(path.read_text().splitlines())) > 400}
    assert not long
