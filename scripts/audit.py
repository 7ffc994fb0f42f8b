"""Look for known vulnerabilities in what the product and its extras install; run with `make audit`.

A vulnerability fails. A vulnerability service that cannot be reached, or does not know a package, is reported, and
does not fail: machines without access to it must be able to run CI.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

SERVICES = ("pypi", "osv")
# Extras for tests and development.
NOT_SHIPPED = {"dev", "testing"}


def installed_packages() -> dict[str, str]:
    """Return the version of each installed package that the product or one of its extras needs."""
    found: dict[str, str] = {}
    seen: set[tuple[str, str]] = set()

    def walk(name: str, extras: set[str]) -> None:
        try:
            package = distribution(name)
        except PackageNotFoundError:
            return
        if name != "recollect":
            found[name] = package.version
        for extra in {"", *extras}:
            if (name, extra) not in seen:
                seen.add((name, extra))
                for requirement in map(Requirement, package.requires or ()):
                    if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
                        walk(requirement.name.lower(), requirement.extras)

    walk("recollect", set(distribution("recollect").metadata.get_all("Provides-Extra", [])) - NOT_SHIPPED)
    return found


def ask(service: str, packages: dict[str, str]) -> dict[str, Any] | None:
    """Return the report of pip-audit; None if the service cannot be reached."""
    with tempfile.TemporaryDirectory() as folder:
        pinned = Path(folder, "requirements.txt")
        pinned.write_text("".join(f"{name}=={version}\n" for name, version in sorted(packages.items())))
        command = [sys.executable, "-m", "pip_audit", "--vulnerability-service", service, "--format", "json"]
        command += ["--requirement", str(pinned), "--no-deps", "--disable-pip", "--progress-spinner", "off"]
        output = subprocess.run(command, capture_output=True, text=True).stdout
    try:
        return json.loads(output)
    except ValueError:
        return None


def describe(report: dict[str, Any]) -> Iterator[str]:
    """Yield a line for each vulnerability."""
    for package in report["dependencies"]:
        for each in package.get("vulns", ()):
            fixed = ", ".join(each["fix_versions"]) or "no version yet"
            yield f"{package['name']} {package['version']}: {each['id']}, fixed in {fixed}"


def audited(report: dict[str, Any]) -> int:
    """Return how many packages the service knew."""
    return sum("skip_reason" not in package for package in report["dependencies"])


def main() -> int:
    """Print the result; return 1 for a vulnerability."""
    packages = installed_packages()
    for service in SERVICES:
        report = ask(service, packages)
        if report is None or not audited(report):
            print(
                f"NOT AUDITED by {service}: the service cannot be reached, or knows none of {len(packages)} packages."
            )
            continue
        found = list(describe(report))
        print(f"Audited by {service}: {audited(report)} of {len(packages)} packages, {len(found)} vulnerabilities.")
        print(*found, sep="\n")
        return 1 if found else 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
