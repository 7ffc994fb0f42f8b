"""Write a software bill of materials: what `pip install recollect` installs, as CycloneDX JSON.

Run it with `python -m scripts.sbom FILE`, or with `make sbom` for a release.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import tomllib
import venv
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]


def runtime_dependencies() -> list[str]:
    """Return the normalized names of the dependencies of pyproject.toml that apply to this system."""
    lines = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    requirements = [each for each in map(Requirement, lines) if each.marker is None or each.marker.evaluate()]
    return sorted(re.sub(r"[-_.]+", "-", each.name).lower() for each in requirements)


def write_sbom(python: Path, to: Path, *, validate: bool = True) -> None:
    """List the packages in the environment of an interpreter; raise ValueError if a runtime dependency is missing.

    Without `validate` it is not compared with the schema of CycloneDX, which takes most of the time.
    """
    command = [sys.executable, "-m", "cyclonedx_py", "environment", str(python), "--pyproject", "pyproject.toml"]
    command += ["--output-reproducible", "--output-format", "JSON", "--output-file", str(to.absolute())]
    command += ["--validate" if validate else "--no-validate"]
    subprocess.run(command, cwd=ROOT, check=True)
    listed = {re.sub(r"[-_.]+", "-", each["name"]).lower() for each in json.loads(to.read_text())["components"]}
    if missing := [name for name in runtime_dependencies() if name not in listed]:
        raise ValueError(f"{to} does not list {', '.join(missing)}: is everything installed?")


def main(to: Path) -> None:
    """Install the project into an empty environment, and list that."""
    to.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, symlinks=True)
        python = Path(folder, "bin", "python")
        subprocess.run(
            [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", str(ROOT)], check=True
        )
        write_sbom(python, to)
    print(f"{to} lists {len(json.loads(to.read_text())['components'])} packages.")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
