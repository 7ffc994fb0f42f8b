"""Deployment files: valid syntax, existing settings and commands, working probes."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from fastapi.testclient import TestClient

from recollect.cli.main import root
from recollect.config.settings import Settings, load
from recollect.http.app import make_app
from tests.support.paths import ROOT

DEPLOY = ROOT / "deploy"
MANIFESTS = sorted(DEPLOY.glob("kubernetes/*.yaml"))
# Read by us though they are not of our making.
FOREIGN_VARIABLES = {"OPENAI_BASE_URL", "OPENAI_API_KEY"}
KUBERNETES = "1.32"


def compose() -> dict[str, Any]:
    return yaml.safe_load((DEPLOY / "compose.yaml").read_text())  # type: ignore[no-any-return]


def objects(file: Path) -> Iterator[dict[str, Any]]:
    yield from yaml.safe_load_all(file.read_text())


def pods() -> Iterator[Mapping[str, Any]]:
    for file in MANIFESTS:
        for each in objects(file):
            if each["kind"] in ("StatefulSet", "Deployment"):
                yield each["spec"]["template"]["spec"]


def deployed_settings() -> dict[str, str]:
    """Return every variable that a file sets, with a possible value."""
    options: dict[str, str] = {}
    for service in ("server", "worker"):
        options |= compose()["services"][service]["environment"]
    for file in MANIFESTS:
        for each in objects(file):
            options |= each.get("data", {}) | each.get("stringData", {})
    for pod in pods():
        for container in pod["containers"]:
            options |= {entry["name"]: entry["value"] for entry in container.get("env", ())}
    for line in (DEPLOY / "Containerfile").read_text().splitlines():
        options |= dict(re.findall(r"\b(RECOLLECT_\w+)=(\S+)", line))
    # What compose fills in from its own environment.
    return {name: re.sub(r"\$\{\w+(?::-(\w*)|:\?[^}]*)\}", r"\1", value) for name, value in options.items()}


def test_every_variable_is_a_setting_with_a_valid_value() -> None:
    inputs = deployed_settings()
    assert len(inputs) > 10
    existing = {f"RECOLLECT_{name.upper()}" for name in Settings.model_fields} | FOREIGN_VARIABLES
    assert set(inputs) <= existing
    settings = load({}, environ=inputs).settings
    assert (settings.host, settings.auth, settings.worker) == ("0.0.0.0", "keys", False)
    assert settings.database.startswith("postgresql://recollect:")
    assert settings.upstream_url == load({}, environ={}).settings.upstream_url, "an empty variable is one not set"


def test_every_command_exists() -> None:
    commands = [compose()["services"][name]["command"] for name in ("server", "worker")]
    commands += [container["args"] for pod in pods() for container in pod["containers"]]
    output = (DEPLOY / "compose.yaml").read_text()
    commands += [shlex.split(line) for line in re.findall(r"exec server recollect (.+)", output)]
    assert len(commands) == 5
    for command in commands:
        visible = CliRunner().invoke(root, [*command, "--help"])
        assert visible.exit_code == 0, command


def test_every_probe_is_answered(tmp_path: Path) -> None:
    kinds = ("startupProbe", "livenessProbe", "readinessProbe")
    paths = {c[kind]["httpGet"]["path"] for pod in pods() for c in pod["containers"] for kind in kinds if kind in c}
    paths |= set(re.findall(r"http://127\.0\.0\.1:8100(/\w+)", (DEPLOY / "Containerfile").read_text()))
    assert paths
    with TestClient(make_app(load({"home": tmp_path}, environ={}).settings), base_url="http://127.0.0.1") as client:
        assert {path: client.get(path).status_code for path in paths} == dict.fromkeys(paths, 200)


def test_grace_periods_cover_the_drain_time() -> None:
    longest = Settings().shutdown_timeout_s
    assert all(pod["terminationGracePeriodSeconds"] > longest for pod in pods())
    for name in ("server", "worker"):
        assert int(compose()["services"][name]["stop_grace_period"].rstrip("s")) > longest


@pytest.mark.parametrize(
    "file", [file for file in MANIFESTS if file.name != "kustomization.yaml"], ids=lambda f: f.name
)
def test_manifests_are_valid(file: Path) -> None:
    # Its import takes a second, which only the process of this test needs to spend.
    from kubernetes_validate import validate

    for each in objects(file):
        validate(each, KUBERNETES, strict=True)


def test_every_manifest_is_applied_except_the_example_secret() -> None:
    [kustomization] = objects(DEPLOY / "kubernetes" / "kustomization.yaml")
    rest = {"kustomization.yaml", "secret.example.yaml"}
    assert set(kustomization["resources"]) == {file.name for file in MANIFESTS} - rest


def test_extras_of_the_image_exist() -> None:
    import tomllib

    extras = re.search(r"'\.\[([\w,-]+)\]'", (DEPLOY / "Containerfile").read_text())
    assert extras
    existing = tomllib.loads((DEPLOY.parent / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(extras[1].split(",")) <= set(existing)


def test_files_mounted_by_compose_exist() -> None:
    parts = compose()
    for service in parts["services"].values():
        for volume in service.get("volumes", ()):
            source = volume.partition(":")[0]
            assert (DEPLOY / source).is_file() if source.startswith(".") else source in parts["volumes"]
        for each in service.get("depends_on", ()):
            assert each in parts["services"]
