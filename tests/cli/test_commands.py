"""The main purpose of each command."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from recollect import __version__
from recollect.cli.main import COMMANDS
from recollect.config.settings import Settings
from recollect.http.server import BoundSockets
from tests.support.cli_runner import Cli
from tests.support.paths import ROOT


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    return Cli(tmp_path / "home")


def test_without_arguments_three_first_commands_are_shown(cli: Cli) -> None:
    output = cli().stdout
    assert all(f"recollect {name}" in output for name in ("add", "search", "doctor"))
    assert set(cli.json()["commands"]) == set(COMMANDS)


def test_the_version_is_printed(cli: Cli) -> None:
    assert cli("--version").stdout == f"recollect {__version__}\n"


def test_an_added_memory_is_found_listed_and_shown(cli: Cli) -> None:
    id = cli.add(
        "The Hawaii trip may cost 10,000 dollars", "--tag", "travel", "--meta", "days=7", "--importance", "0.8"
    )
    assert id in cli("search", "How", "much", "may", "Hawaii", "cost?").stdout
    assert "The Hawaii trip may cost 10,000 dollars" in cli("list").stdout
    visible = cli.json("show", id)
    assert (visible["tags"], visible["metadata"], visible["importance"]) == (["travel"], {"days": 7}, 0.8)
    assert "travel" in cli("show", id).stdout


def test_text_can_be_piped_in_and_loses_only_its_last_newline(cli: Cli) -> None:
    assert cli.json("add", input="first line\n\nthird line\n")["memory"] == "first line\n\nthird line"
    assert cli.json("add", "-", input="windows\r\n")["memory"] == "windows"


def test_an_existing_memory_is_not_added_twice(cli: Cli) -> None:
    id = cli.add("Prefers window seats")
    repeated = cli("add", "prefers  window seats").stdout
    assert repeated == f"Exists as {id}; nothing changed.\n"


def test_a_value_with_higher_confidence_stays_until_corrected(cli: Cli) -> None:
    fact = ("--key", "diet", "--category", "preference")
    first = cli.json("add", "--value", "vegan", *fact)
    assert first["memory"] == "diet: vegan"
    assert (
        "higher confidence for 'diet'"
        in cli("add", "Eats fish", "--value", "fish", *fact, "--confidence", "0.4").stdout
    )
    replaced = cli("add", "--value", "fish", *fact, "--confidence", "0.4", "--correction").stdout
    assert "replaces the earlier value of 'diet'" in replaced
    assert cli.json("show", first["id"])["status"] == "superseded"


def test_an_idempotency_key_adds_once(cli: Cli) -> None:
    first = cli.add("Likes tea", "--idempotency-key", "k1")
    assert cli.add("Likes tea", "--idempotency-key", "k1") == first
    assert "idempotency" in cli.error("add", "Likes coffee", "--idempotency-key", "k1", code=4)


def test_turns_are_remembered_in_order_and_searched(cli: Cli) -> None:
    where = ("--session", "monday", "--user", "alex")
    assert "turn 1 of session monday" in cli("remember", "I moved to Lisbon. What is there to see?", *where).stdout
    text = cli.json("remember", "--role", "assistant", "--name", "Ada", *where, input="Noted!\n")["turns"]
    assert [(turn["position"], turn["role"], turn["name"], turn["content"]) for turn in text] == [
        (2, "assistant", "Ada", "Noted!")
    ]
    assert "I moved to Lisbon" in cli("search", "Lisbon", *where).stdout
    listed = cli("list", *where).stdout
    assert "I moved to Lisbon" in listed
    assert "What is there to see?" not in listed
    assert "What is there to see?" in cli("list", "--turns", *where).stdout


def test_an_update_changes_text_and_fields_and_is_in_history(cli: Cli) -> None:
    id = cli.add("Budget 10,000", "--tag", "old")
    changed = cli.json("update", id, "Budget", "12,000", "--tag", "new", "--why", "he said so")
    assert (changed["memory"], changed["tags"], changed["version"]) == ("Budget 12,000", ["new"], 2)
    output = cli("history", id).stdout
    assert "content: Budget 10,000 → Budget 12,000" in output
    assert "why: he said so" in output
    assert "nothing changed" in cli("update", id, "--tag", "new").stdout


def test_history_shows_the_text_after_each_change(cli: Cli) -> None:
    id = cli.add("Budget 10,000")
    cli("update", id, "Budget 11,000")
    cli("update", id, "Budget 12,000")
    other = cli.add("Likes tea")
    output = [line.strip() for line in cli("history").stdout.splitlines()]
    messages = [line for line in output if line.startswith(("Budget", "Likes")) and "→" not in line]
    assert messages == ["Likes tea", "Budget 12,000", "Budget 11,000", "Budget 10,000"]
    # What came later than the page is known, too.
    first = cli.json("history", id)["results"][-1]["id"]
    older = cli("history", "--before", str(first + 1)).stdout
    assert "Budget 10,000" in older
    assert other not in older


def test_an_update_of_an_old_version_is_a_conflict(cli: Cli) -> None:
    id = cli.add("Budget 10,000")
    cli("update", id, "Budget 11,000", "--expect-version", "1")
    assert "version 2, not 1" in cli.error("update", id, "Budget 12,000", "--expect-version", "1", code=4)
    assert cli.json("show", id)["memory"] == "Budget 11,000"


def test_undo_and_restore_bring_back_a_forgotten_memory(cli: Cli) -> None:
    id = cli.add("Likes jazz")
    cli("forget", id)
    assert "Nothing found" in cli("search", "jazz").stdout
    assert id in cli("list", "--status", "forgotten").stdout
    assert f"{id} is active" in cli("undo").stdout
    cli("forget", id)
    assert "forgotten already" in cli("forget", id).stdout
    assert cli("restore", id).stdout == f"Restored {id}\n"
    assert "active already" in cli("restore", id).stdout


def test_a_change_is_undone_by_its_number(cli: Cli) -> None:
    id = cli.add("Likes jazz")
    cli("update", id, "Likes folk")
    cli("update", id, "--importance", "0.9")
    change = next(entry["id"] for entry in cli.json("history", id)["results"] if "content" in entry["after"])
    assert cli.json("undo", str(change))["results"][0]["memory"] == "Likes jazz"
    assert cli.json("show", id)["importance"] == 0.9


def test_forgetting_all_needs_confirmation_and_can_be_filtered(cli: Cli) -> None:
    cli.add("Likes jazz", "--tag", "music")
    cli.add("Likes tea")
    assert "--yes" in cli.error("forget", "--all", code=2)
    assert cli.json("forget", "--all", "--tag", "music", "--yes") == {"forgotten": 1}
    assert cli("forget", "--all", "--yes").stdout == "Forgot 1 memory.\n"


def test_shared_options_work_before_and_after_the_command(cli: Cli) -> None:
    before = json.loads(cli("--user", "alex", "--project", "trip", "--json", "add", "Likes tea").stdout)
    after = cli.json("add", "Likes tea", "--user", "alex", "--project", "trip")
    assert before["id"] == after["id"]
    assert (after["level"], after["project_id"]) == ("project", "trip")
    assert cli.json("--user", "alex", "list", "--user", "bob")["results"] == []


def test_a_list_continues_at_its_cursor(cli: Cli) -> None:
    ids = [cli.add(f"Memory number {n}") for n in range(3)]
    first = cli.json("list", "--limit", "2", "--oldest")
    second = cli.json("list", "--limit", "2", "--oldest", "--cursor", first["cursor"])
    assert [each["id"] for page in (first, second) for each in page["results"]] == ids
    assert second["cursor"] is None
    assert first["cursor"] in cli("list", "--limit", "2", "--oldest").stderr


def test_history_continues_before_a_change(cli: Cli) -> None:
    for n in range(3):
        cli.add(f"Memory number {n}")
    newest = cli.json("history", "--limit", "2")["results"]
    rest = cli.json("history", "--before", str(newest[-1]["id"]))["results"]
    assert [entry["id"] for entry in newest + rest] == sorted((e["id"] for e in newest + rest), reverse=True)
    assert len(rest) == 1


def test_an_export_is_imported_completely_and_only_once(cli: Cli, tmp_path: Path) -> None:
    stored = cli.add("Likes tea", "--tag", "drinks", "--user", "alex")
    cli("forget", cli.add("Likes gin", "--user", "bob"), "--user", "bob")
    cli("remember", "I moved to Lisbon", "--session", "monday", "--user", "alex")
    file = tmp_path / "all.jsonl"
    # The last as it was said, as it was learned, and the session it was said in.
    assert "Exported 5 lines" in cli("export", str(file)).stdout
    assert file.stat().st_mode & 0o077 == 0

    other = Cli(tmp_path / "other")
    report = other.json("import", str(file))
    assert (report["added"], report["present"], report["refused"]) == (4, 0, 0)
    assert other("import", input=file.read_bytes()).stdout.endswith("Added 0; 4 existed already.\n")
    assert other.json("show", stored, "--user", "alex") == cli.json("show", stored, "--user", "alex")
    assert other.json("users") == {"results": ["alex", "bob"]}
    assert "I moved to Lisbon" in other("search", "Lisbon", "--user", "alex").stdout


def test_stats_count_all_or_one_user(cli: Cli) -> None:
    cli.add("Likes tea", "--user", "alex")
    cli.add("Likes gin", "--user", "bob")
    assert cli.json("stats")["memories"] == 2
    assert cli.json("stats", "--user", "bob")["memories"] == 1
    assert "on disk" in cli("stats").stdout


def test_reembed_does_nothing_if_all_vectors_are_current(cli: Cli) -> None:
    cli.add("Likes tea")
    assert cli("reembed").stdout == "Every memory has a vector of the current model.\n"
    assert cli.json("reembed") == {"embedded": 0}


def test_config_show_prints_value_variable_and_source(cli: Cli) -> None:
    cli.home.mkdir()
    (cli.home / "config.toml").write_text('port = 1234\nembedder_api_key = "hush"\n')
    settings = {row["name"]: row for row in cli.json("config", "show")["settings"]}
    assert (settings["port"]["value"], settings["port"]["variable"]) == ("1234", "RECOLLECT_PORT")
    assert settings["port"]["source"] == f"file {cli.home / 'config.toml'}"
    assert settings["home"]["source"] == "environment RECOLLECT_HOME"
    assert "hush" not in cli("config", "show").stdout
    output = cli("config", "show", "database", "--database", "postgresql://bob:hush@db:5432/x").stdout
    assert "postgresql://bob:********@db:5432/x" in output


def test_config_path_prints_the_settings_file(cli: Cli, tmp_path: Path) -> None:
    assert cli.json("config", "path")["exists"] is False
    assert cli("config", "path").stdout.strip() == str(cli.home / "config.toml")
    other = tmp_path / "other.yaml"
    other.write_text("port: 4321\n")
    assert cli.json("config", "path", "--config", str(other))["file"] == str(other)
    assert "4321" in cli("config", "show", "port", "--config", str(other)).stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_completion_script_has_install_instructions(cli: Cli, shell: str) -> None:
    script = cli("completion", shell).stdout
    assert "_RECOLLECT_COMPLETE" in script
    assert f"# To install: recollect completion {shell} >" in script
    assert cli.json("completion", shell)["script"].strip() in script


def test_every_command_prints_one_json_document(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recollect.http.server.serve", lambda settings, listening: listening.close())
    id = cli.add("Likes tea")
    words = {
        "add": ["x"],
        "remember": ["x"],
        "search": ["x"],
        "graph": ["tea"],
        "update": [id, "y"],
        "completion": ["bash"],
    }
    words |= {"export": [str(cli.home / "all.jsonl")], "import": ["-"], "config": ["show"], "doctor": ["--mend"]}
    words |= {name: [id] for name in ("show", "history", "forget", "restore")}
    words |= {"erase": ["--memory", cli.add("Likes gin"), "--yes"], "worker": ["--once"], "upkeep": ["--dry-run"]}
    words |= {"keys": ["add", "--user", "alex"], "index": ["status"], "graph": ["tea"]}
    words["backup"] = ["make", str(cli.home / "all.backup")]
    words |= {"install": ["--list"], "uninstall": ["codex", "--dry-run"], "hook": ["recall", "--client", "codex"]}
    words["end-run"] = ["Deploy the shop", "--session", "monday"]
    words["serve"] = ["--port", "0"]
    words["eval"] = ["recipe", str(ROOT / "examples" / "06_recipe.yaml")]
    # They take a person, a model, a client, a folder or a PostgreSQL; their own tests read what they answer.
    for name in COMMANDS.keys() - {"chat", "agent", "mcp", "mirror", "partition"}:
        assert isinstance(cli.json(name, *words.get(name, []), input=""), dict)


def test_serve_passes_the_settings_to_the_server(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    served: list[Settings] = []

    def note(settings: Settings, listening: BoundSockets) -> None:
        served.append(settings)
        listening.close()

    monkeypatch.setattr("recollect.http.server.serve", note)
    output = cli("serve", "--port", "0", "--workers", "3", "--no-access-log", "--allowed-hosts", "a.example").stdout
    assert re.search(r"http://127\.0\.0\.1:[1-9]\d+ ", output)
    assert re.fullmatch(r"http://127\.0\.0\.1:[1-9]\d+", cli.json("serve", "--port", "0")["address"])
    first = served[0]
    assert (first.server_processes, first.access_log, first.allowed_hosts) == (3, False, "a.example")
