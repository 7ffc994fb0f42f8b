"""recollect erase: permanent, with a receipt and a confirmation."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cli_runner import Cli

COMMAND = [sys.executable, "-m", "recollect.cli.main"]
LISBON = "I live in Lisbon"


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    return Cli(tmp_path / "home")


def test_a_session_is_erased_with_its_memories(cli: Cli) -> None:
    cli("remember", LISBON, "--session", "monday")
    stored = cli.add("Likes tea")
    output = cli("erase", "--session", "monday", "--yes", "--why", "he asked for it").stdout
    assert output.startswith("Erased everything of user default in session monday for good  receipt ")
    assert "  ledger: memories 1, turns 1" in output
    assert [each["id"] for each in cli.json("list")["results"]] == [stored]
    # The clock may have given out chores meanwhile; they concern nobody's words.
    assert [job for job in cli.json("jobs")["results"] if job["kind"] != "upkeep"] == []
    assert "Lisbon" not in (cli.home / "recollect.db").read_bytes().decode("latin-1")


def test_a_memory_a_turn_and_a_user_are_erased_with_a_receipt(cli: Cli) -> None:
    id = cli.add("Likes tea", "--user", "alex")
    assert "Give the memory once" in cli.error("erase", id, "--memory", id, "--user", "alex", "--yes", code=2)
    receipt = cli.json("erase", id, "--user", "alex", "--yes")
    assert (receipt["target"], receipt["target_id"], receipt["reached"]) == ("memory", id, True)
    [turn] = cli.json("remember", LISBON, "--user", "alex")["turns"]
    assert len(cli.json("list", "--user", "alex")["results"]) == 1
    assert cli.json("erase", "--turn", turn["id"], "--user", "alex", "--yes")["target"] == "turn"
    assert cli.json("list", "--user", "alex")["results"] == []
    cli.add("Likes gin", "--user", "alex")
    cli.add("Likes rum", "--user", "bob")
    assert cli.json("erase", "--everything", "--user", "alex", "--yes")["target"] == "user"
    assert cli.json("users") == {"results": ["bob"]}


def test_erasing_a_memory_forgets_its_turns(cli: Cli) -> None:
    [turn] = cli.json("remember", "I moved to Wombatton", "--user", "alex")["turns"]
    [stored] = cli.json("list", "--user", "alex")["results"]
    output = cli("erase", "--memory", stored["id"], "--user", "alex", "--yes").stdout
    assert "forgotten, not erased: 1 turn that it was learned from" in output
    assert f"recollect erase --turn {turn['id']} --user alex" in output
    assert "Wombatton" not in cli("recall", "Where is Wombatton, do I live there?", "--user", "alex").stdout
    assert cli.json("erase", "--turn", turn["id"], "--user", "alex", "--yes")["target"] == "turn"
    assert "Wombatton" not in (cli.home / "recollect.db").read_bytes().decode("latin-1")


@pytest.mark.parametrize("option", ["--memory", "--turn"])
def test_unknown_and_foreign_ids_cannot_be_erased(cli: Cli, option: str) -> None:
    foreign = cli.add("Likes rum", "--user", "bob")
    for id in ("nope", foreign):
        assert f"no {option[2:]} {id}" in cli.error("erase", option, id, "--user", "alex", "--yes", code=3)
    assert cli.json("show", foreign, "--user", "bob")["memory"] == "Likes rum"


def test_a_terminal_is_asked_for_confirmation(cli: Cli) -> None:
    cli.add("Likes tea", "--user", "alex")
    terminal, inside = pty.openpty()
    variables = {**os.environ, "RECOLLECT_HOME": str(cli.home), "NO_COLOR": "1"}
    words = [*COMMAND, "erase", "--everything", "--user", "alex"]
    with subprocess.Popen(words, stdin=inside, stdout=inside, stderr=inside, env=variables) as command:
        visible = b""
        while b"[y/N]" not in visible:
            visible += os.read(terminal, 10_000)
        os.write(terminal, b"n\n")
        assert command.wait(60) == 0
    os.close(inside)
    visible += os.read(terminal, 10_000)
    os.close(terminal)
    assert b"Erase everything of user alex for good?" in visible
    assert b"Nothing was erased." in visible
    assert cli.json("list", "--user", "alex")["results"]
