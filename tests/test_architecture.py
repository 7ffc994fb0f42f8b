"""The package has six layers without cycles, uses the vocabulary of the field, and exports what it promises."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import recollect
from recollect.model.result import SearchResult

SOURCE = Path(recollect.__file__).parent
MODULES = sorted(SOURCE.rglob("*.py"))
TESTS = Path(__file__).parent

# Outermost first. A module may import its own layer and those below it.
LAYERS = {
    "interfaces": (
        "__main__",
        "agent",
        "cli",
        "client",
        "http",
        "integrations",
        "mcp",
        "namespaces",
        "sync",
        "testing",
    ),
    "wiring": ("wiring",),
    # The wiring builds the mirror, which the service notifies of erasures.
    "service": ("mirror", "service"),
    "flows and steps": (
        "deps",
        "erasure",
        "files",
        "maintenance",
        "quotes",
        "read",
        "recall",
        "remember",
        "search",
        "sessions",
        "transfer",
        "write",
    ),
    "stores and models": ("cache", "index", "ledger", "models"),
    "foundation": ("aio", "coding", "config", "errors", "model", "observability", "project", "prompts", "text"),
}
DEPTH = {part: depth for depth, parts in enumerate(LAYERS.values()) for part in parts}
UNLAYERED = {"__init__"}
CALLERS_OF_THE_SERVICE = {*LAYERS["interfaces"], "mirror"}
HIDDEN_FROM_CALLERS = {"index", "ledger", "maintenance", "read", "write"}

BANNED_WORDS = set(
    "told heard said asked wanted given kept held known habits means care house room taste patience standing "
    "again beside behind aside whose others".split()
)


@cache
def nodes(path: Path) -> list[ast.AST]:
    """Return all nodes of a module's syntax tree."""
    return list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


@pytest.fixture(scope="module", autouse=True)
def forget_nodes() -> Iterator[None]:
    """Drop the syntax trees in the end: a million objects slow every later garbage collection."""
    yield
    nodes.cache_clear()


def module_name(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


def part_of(path: Path) -> str:
    """Return the top-level module or package that a file belongs to."""
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


@cache
def imported_parts(path: Path) -> set[str]:
    """Return the other top-level parts that a module imports, wherever in the file it does."""
    names: set[str] = set()
    for node in nodes(path):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    parts = {name.split(".")[1] for name in names if name.startswith("recollect.")}
    return parts & DEPTH.keys() - {part_of(path)}


LAYERED = [path for path in MODULES if part_of(path) not in UNLAYERED]


def layer_violations(path: Path) -> set[str]:
    depth = DEPTH[part_of(path)]
    hidden = HIDDEN_FROM_CALLERS if part_of(path) in CALLERS_OF_THE_SERVICE else set()
    return {part for part in imported_parts(path) if DEPTH[part] < depth or part in hidden}


def test_every_part_of_the_package_has_a_layer() -> None:
    assert {part_of(path) for path in MODULES} == DEPTH.keys() | UNLAYERED


def test_imports_point_inwards_and_interfaces_use_the_service() -> None:
    violations = {module_name(path): layer_violations(path) for path in LAYERED}
    assert not {name: parts for name, parts in violations.items() if parts}


def test_packages_have_no_import_cycles() -> None:
    graph: defaultdict[str, set[str]] = defaultdict(set)
    for path in LAYERED:
        graph[part_of(path)] |= imported_parts(path)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        # graphlib lists a cycle in the direction of the imports, reversed.
        pytest.fail(f"import cycle: {' <- '.join(error.args[1])}")


async def test_search_reaches_its_flow_in_few_hops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hops: list[str] = []

    async def flow(*_: object) -> SearchResult:
        stack = [frame for frame in inspect.stack() if Path(frame.filename).is_relative_to(SOURCE)]
        hops.extend(f"{module_name(Path(frame.filename))}:{frame.function}" for frame in stack)
        return SearchResult(())

    monkeypatch.setattr("recollect.search.search", flow)
    async with recollect.AsyncMemory(home=tmp_path) as memory:
        await memory.search("tea", user_id="alex")
    # Two more with the blocking `Memory`: its method, and its loop thread.
    assert hops == ["service/service.py:search", "client.py:search"]


def words(name: str) -> set[str]:
    return {word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)}


def declared_names(path: Path) -> Iterator[str]:
    """Yield the names of a module and of its classes, functions and parameters, except those of tests."""
    yield path.stem
    for node in nodes(path):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            if not node.name.startswith("test_"):
                yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg


def test_names_use_the_vocabulary_of_the_field() -> None:
    banned: dict[str, set[str]] = {}
    for path in MODULES:
        # A type of results is called a result or a hit; "NotFound" is the usual name of an error.
        names = {each for each in declared_names(path) if words(each) & BANNED_WORDS or each.lower() == "found"}
        if names:
            banned[module_name(path)] = names
    assert not banned


def test_no_two_public_classes_share_a_name() -> None:
    places: defaultdict[str, list[str]] = defaultdict(list)
    for path in MODULES:
        for node in nodes(path):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(module_name(path))
    assert not {name: paths for name, paths in places.items() if len(paths) > 1}


def test_every_public_name_can_be_imported_and_no_other() -> None:
    for name in recollect.__all__:
        assert getattr(recollect, name) is not None
    assert dir(recollect) == sorted(recollect.__all__)
    with pytest.raises(AttributeError):
        recollect.Nonsense  # noqa: B018


def test_importing_the_package_loads_nothing_heavy() -> None:
    heavy = {"numpy", "apsw", "pydantic", "fastapi", "uvicorn", "httpx", "tokenizers", "click", "asyncpg"}
    code = "import sys, recollect; recollect.Memory(); print(' '.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not heavy & set(done.stdout.split())


def test_only_the_settings_read_the_environment() -> None:
    readers = {module_name(path) for path in MODULES if re.search(r"os\.environ|getenv", path.read_text("utf-8"))}
    # The command line also limits the threads of numpy, before numpy is imported; a hook does not load the settings.
    assert readers <= {"config/settings.py", "cli/main.py", "__main__.py"}


def test_tests_mirror_the_package() -> None:
    folders = {path.parent.relative_to(TESTS).as_posix() for path in TESTS.rglob("test_*.py")}
    # What is tested there has no folder in the package: clients, presets end to end, faults, erasure from all stores,
    # evaluations, any ledger, parsers on hostile bytes.
    others = {"clients", "documents", "drills", "erasure", "evals", "fuzz", "ledger/conformance"}
    assert {folder for folder in folders - others if not (SOURCE / folder).is_dir()} == set()


def private_names(path: Path) -> Iterator[str]:
    """Yield the private names that a module reads from others: attributes, imports, and names given to setattr."""
    for node in nodes(path):
        names: list[str] = []
        if isinstance(node, ast.Attribute):
            is_own = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
            names = [] if is_own else [node.attr]
        elif isinstance(node, ast.ImportFrom):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.Call):
            function = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if function in ("getattr", "setattr", "delattr"):
                names = [str(each.value).rpartition(".")[2] for each in node.args if isinstance(each, ast.Constant)]
        yield from (f"{name} in line {node.lineno}" for name in names if name[:1] == "_" != name[1:2])


def test_tests_read_no_private_names() -> None:
    read = {
        path.relative_to(TESTS).as_posix(): names
        for path in TESTS.rglob("*.py")
        # A documented function of Python, whatever its name.
        if (names := [name for name in private_names(path) if not name.startswith("_exit ")])
    }
    assert not read


def test_every_exception_of_the_security_linter_has_a_reason() -> None:
    without_reason = re.compile(r"# noqa: S\d+$", re.MULTILINE)
    assert not [module_name(path) for path in MODULES if without_reason.search(path.read_text("utf-8"))]


def test_no_file_is_longer_than_one_concept() -> None:
    lengths = {module_name(path): len(path.read_text("utf-8").splitlines()) for path in MODULES}
    assert not {name: count for name, count in lengths.items() if count > 700}
