"""The public interfaces are those of the golden files, and what an earlier version wrote opens unchanged."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from recollect import Memory
from scripts.write_golden import FILES, GOLDEN

RECOLLECT = str(Path(sys.executable).parent / "recollect")
FACTS = {
    "The budget for the Hawaii trip is $10,000",
    "Alex is allergic to peanuts",
    "Alex lives in Utrecht since May",
}


@pytest.mark.parametrize("name", sorted(FILES))
def test_interface_is_that_of_the_golden_file(name: str) -> None:
    assert FILES[name]() == (GOLDEN / name).read_text(encoding="utf-8"), (
        f"the interface differs from tests/golden/{name}: if that is meant, run python -m scripts.write_golden"
    )


@pytest.fixture
def earlier(tmp_path: Path) -> Path:
    """A folder with a home, a backup and an export that version 0.1 wrote."""
    with tarfile.open(GOLDEN / "version_0_1.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path


def contents(memory: Memory) -> set[str]:
    return {record.content for record in memory.get_all(user_id="alex").records} & FACTS


def test_a_ledger_of_version_0_1_opens(earlier: Path) -> None:
    with Memory(home=earlier / "home") as memory:
        assert contents(memory) == FACTS
        hits = memory.search("What is Alex allergic to?", user_id="alex").hits
        assert hits[0].record.content == "Alex is allergic to peanuts"
        assert len(memory.history(user_id="alex")) >= 5


def test_a_backup_of_version_0_1_is_restored(earlier: Path) -> None:
    home = earlier / "restored"
    run([RECOLLECT, "backup", "restore", str(earlier / "backup.recollect"), "--home", str(home)])
    with Memory(home=home) as memory:
        assert contents(memory) == FACTS


def test_an_export_of_version_0_1_is_imported(earlier: Path) -> None:
    with Memory(home=earlier / "imported") as memory:
        lines = [json.loads(line) for line in (earlier / "export.jsonl").read_text(encoding="utf-8").splitlines()]
        memory.import_(lines)
        assert contents(memory) == FACTS


def test_a_mirror_folder_of_version_0_1_is_synced(earlier: Path) -> None:
    home = earlier / "home"
    (file,) = [path for path in home.rglob("*.md") if "peanuts" in path.read_text(encoding="utf-8")]
    file.write_text(file.read_text(encoding="utf-8").replace("peanuts", "peanuts and shrimps"), encoding="utf-8")
    run([RECOLLECT, "mirror", "sync", "--preset", "markdown-proxy", "--home", str(home)])
    with Memory(home=home) as memory:
        records = memory.get_all(user_id="alex").records
        assert "Alex is allergic to peanuts and shrimps" in {record.content for record in records}
        assert len(list(home.rglob("*.md"))) >= 7


def run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
