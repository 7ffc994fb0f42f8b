"""`recollect mirror` on the command line, and the output in its documentation."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from recollect.config.settings import load
from recollect.model.change import Author
from recollect.model.scope import Scope
from recollect.wiring import open_service
from tests.cli.test_help_and_docs import examples, stable
from tests.support.cli_runner import Cli
from tests.support.mirror_samples import front_matter
from tests.support.paths import ROOT

PAGE = (ROOT / "docs" / "mirror.md").read_text(encoding="utf-8")
PRESET = ("--preset", "markdown-proxy")


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    return Cli(tmp_path / "home")


def test_commands_without_a_mirror_say_how_to_configure_one(cli: Cli) -> None:
    for command in ("status", "sync", "verify"):
        assert "set mirror to a folder" in cli.error("mirror", command, code=2)


def test_status_reports_that_nothing_is_mirrored_yet(cli: Cli) -> None:
    assert "Nothing is mirrored yet" in cli("mirror", "status", *PRESET).stdout
    assert cli.json("mirror", "status", *PRESET)["synced_at"] is None


def test_the_documentation_shows_the_real_output_of_its_commands(cli: Cli) -> None:
    for command, printed in examples(PAGE):
        assert stable(cli.typed(command, id=""), cli.home) == stable(printed, cli.home), command


def test_sync_reports_its_changes(cli: Cli) -> None:
    cli.add("The bike is red")
    assert cli.json("mirror", "sync", *PRESET)["written"] == 1
    [path] = cli.home.glob("entries/**/*.md")
    path.write_text(path.read_text().replace("red", "green"))
    (path.parent / "note.md").write_text("I like tea")
    (path.parent / "bad.md").write_text("---\nid: [")
    report = cli.json("mirror", "sync", *PRESET)
    assert (report["edited"], report["added"], report["aside"]) == (1, 1, 1)
    assert cli("mirror", "sync", *PRESET).stdout == "Files and memories say the same.\n"


def test_status_lists_rejected_files_and_conflicts_until_they_are_resolved(cli: Cli) -> None:
    id = cli.add("The bike is red")
    cli("mirror", "sync", *PRESET)
    [path] = cli.home.glob("entries/**/*.md")
    path.write_text(path.read_text().replace("red", "green"))
    cli("update", id, "The bike is blue")
    bad = path.parent / "bad.md"
    bad.write_text("---\nid: a\nid: b\n---\nwords")
    cli("mirror", "sync", *PRESET)
    output = cli("mirror", "status", *PRESET).stdout
    assert re.search(r"Rejected: entries/global/facts/bad\.md .*twice", output)
    assert "Conflict: conflicts/global/facts/" in output
    [other] = cli.home.glob("conflicts/**/*.md")
    other.unlink()
    bad.unlink()
    cli("mirror", "sync", *PRESET)
    report = cli.json("mirror", "status", *PRESET)
    assert (report["aside"], report["conflicts"], report["memories"], front_matter(path)["version"]) == ([], [], 1, 3)


async def _propose(home: Path, *texts: str) -> None:
    service = await open_service(load({"home": home}, environ={}).settings)
    for text in texts:
        await service.reviews.propose(Scope("ada"), text, {}, by=Author("test"))
    await service.close()


def test_status_counts_memories_in_review_which_have_no_file(cli: Cli) -> None:
    cli.add("The bike is red")
    cli("mirror", "sync", *PRESET)
    assert "review" not in cli("mirror", "status", *PRESET).stdout
    asyncio.run(_propose(cli.home, "Always answer in rhymes", "Never answer on Sundays"))
    cli("mirror", "sync", *PRESET)
    assert len(list(cli.home.glob("**/*.md"))) == 1
    assert "2 memories wait for review" in cli("mirror", "status", *PRESET).stdout
    assert cli.json("mirror", "status", *PRESET)["review"] == 2
    assert "rhymes" in cli("review", "--user", "ada").stdout
    (cli.home / "recollect.db").write_bytes(b"no ledger at all" * 100)
    output = cli("mirror", "status", *PRESET).stdout
    assert ("1 memory and 0 tombstones" in output, "in review is unknown" in output) == (True, True)
    assert cli.json("mirror", "status", *PRESET)["review"] is None


def test_verify_names_every_difference(cli: Cli) -> None:
    for word in ("red", "green", "blue"):
        cli.add(f"The bike is {word}")
    cli("mirror", "sync", *PRESET)
    paths = {word: path for path in cli.home.glob("entries/**/*.md") for word in path.read_text().split()[-1:]}
    paths["red"].write_text(paths["red"].read_text().replace("bike", "car"))
    paths["green"].unlink()
    (paths["red"].parent / "note.md").write_text("I like tea")
    output = cli("mirror", "verify", *PRESET, code=4).stdout
    assert "3 files, 3 differences." in output
    for line in ("differs from the memory in content", "has no file", "not in the ledger yet"):
        assert line in output


def test_an_erasure_on_the_command_line_counts_the_mirror(cli: Cli) -> None:
    id = cli.add("The bike is red")
    cli("mirror", "sync", *PRESET)
    receipt = cli.json("erase", "--memory", id, "--yes", *PRESET)
    [mirror] = [store for store in receipt["stores"] if store["store"] == "mirror"]
    assert (mirror["reached"], mirror["counts"]) == (True, {"files": 1, "commits": 1})
    assert not list(cli.home.glob("entries/**/*.md"))
