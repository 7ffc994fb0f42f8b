"""The bill of materials of a release, and the audit of its dependencies."""

from __future__ import annotations

import json
import venv
from importlib.metadata import files
from pathlib import Path

import pytest

from scripts.audit import audited, describe, installed_packages
from scripts.sbom import runtime_dependencies, write_sbom


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """Return an interpreter whose environment has the metadata of the runtime dependencies and nothing else."""
    venv.create(tmp_path, symlinks=True)
    [packages] = tmp_path.glob("lib/python*/site-packages")
    for name in runtime_dependencies():
        [metadata] = {Path(str(file.locate())).parent for file in files(name) or () if file.name == "METADATA"}
        (packages / metadata.name).symlink_to(metadata)
    return tmp_path / "bin" / "python"


def test_the_bill_of_materials_lists_the_runtime_dependencies_with_versions(
    tmp_path: Path, environment: Path
) -> None:
    write_sbom(environment, tmp_path / "sbom.json", validate=False)
    bill = json.loads((tmp_path / "sbom.json").read_text())
    assert bill["bomFormat"] == "CycloneDX"
    assert bill["metadata"]["component"]["name"] == "recollect"
    versions = {each["name"].lower().replace("_", "-"): each["version"] for each in bill["components"]}
    assert all(versions[name] for name in runtime_dependencies())


def test_a_bill_of_materials_without_a_dependency_is_refused(tmp_path: Path, environment: Path) -> None:
    [metadata] = tmp_path.glob("lib/python*/site-packages/uvicorn-*")
    metadata.unlink()
    with pytest.raises(ValueError, match="does not list uvicorn"):
        write_sbom(environment, tmp_path / "sbom.json", validate=False)


def test_the_audit_covers_dependencies_and_extras_but_not_tools_of_development() -> None:
    packages = installed_packages()
    assert {name.replace("-", "_") for name in packages} >= {"aiohttp", "fastapi", "asyncpg", "pyjwt", "cryptography"}
    assert not packages.keys() & {"pytest", "ruff", "mypy", "recollect"}


@pytest.mark.parametrize(
    ("package", "lines", "known"),
    [
        (
            {"name": "a", "version": "1", "vulns": [{"id": "CVE-1", "fix_versions": ["2"]}]},
            ["a 1: CVE-1, fixed in 2"],
            1,
        ),
        ({"name": "a", "version": "1", "vulns": []}, [], 1),
        ({"name": "a", "skip_reason": "not found"}, [], 0),
    ],
)
def test_a_vulnerability_is_named_and_an_unknown_package_is_not_counted(
    package: dict[str, object], lines: list[str], known: int
) -> None:
    report = {"dependencies": [package]}
    assert list(describe(report)) == lines
    assert audited(report) == known
