"""Errors on the command line: a clear message, a documented exit code, nothing lost, no traceback."""

from __future__ import annotations

import inspect
import json
import re
from pathlib import Path

import apsw
import click
import pytest
from click.testing import CliRunner

from recollect import errors
from recollect.cli.context import EXIT_CODES, ExitCode, error_name
from recollect.cli.main import root
from recollect.http.server import bind_sockets
from tests.support.cli_runner import Cli
from tests.support.paths import ROOT

MEGABYTE = 1 << 20
ERRORS = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, errors.RecollectError)]


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    return Cli(tmp_path / "home")


def test_every_error_has_an_exit_code_of_its_own_branch() -> None:
    fallbacks = [
        kind for kind in ERRORS if next(each for each in kind.__mro__ if each in EXIT_CODES) is errors.RecollectError
    ]
    assert fallbacks == [errors.RecollectError]


def test_all_exit_codes_are_documented() -> None:
    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    assert all(f"| {code.value} |" in page for code in ExitCode)


def test_an_error_has_the_name_of_its_class_in_json() -> None:
    assert error_name(errors.StoreTooNew("x")) == "store_too_new"
    assert error_name(click.UsageError("x")) == "usage"
    assert error_name(KeyError("x")) == "unexpected"


@pytest.mark.parametrize("command", ["show", "forget", "restore", "history", "update"])
def test_an_unknown_id_and_a_foreign_one_answer_alike(cli: Cli, command: str) -> None:
    foreign = cli.add("A secret of bob", "--user", "bob")
    words = ("new words",) if command == "update" else ()
    answers = [cli.error(command, id, *words, "--user", "alex", code=3).replace(id, "ID") for id in (foreign, "nope")]
    [answer] = set(answers)
    assert re.fullmatch(
        r"Error: no memory ID for this user; `list` and `search` show ids, such as [0-9a-f-]{36}\n", answer
    )
    assert cli.json("show", foreign, "--user", "bob")["version"] == 1


def test_an_error_in_json_is_one_document_on_stderr(cli: Cli) -> None:
    report = json.loads(cli.error("show", "nope", "--json", code=3))
    message = report["error"].pop("message")
    assert (report, message[:14]) == ({"error": {"code": "not_found", "exit_code": 3}}, "no memory nope")
    assert json.loads(cli.error("--json", "list", "--limit", "x", code=2))["error"]["code"] == "usage"
    assert json.loads(cli.error("list", "--nonsense", "--json", code=2))["error"]["code"] == "usage"


@pytest.mark.parametrize("command", ["add", "remember", "search"])
def test_an_empty_text_is_rejected(cli: Cli, command: str) -> None:
    assert "is empty" in cli.error(command, "   ", code=2)
    assert "is empty" in cli.error(command, input="\n\n", code=2)


def test_a_megabyte_is_stored_and_a_byte_more_is_rejected(cli: Cli) -> None:
    assert len(cli.json("add", input="a" * MEGABYTE + "\n")["memory"]) == MEGABYTE
    for command in ("add", "search"):
        assert "1,048,576 bytes" in cli.error(command, input="ä" * (MEGABYTE // 2) + "b", code=2)
    assert cli.json("stats")["memories"] == 1


def test_invalid_characters_are_rejected_with_their_place(cli: Cli) -> None:
    assert "NUL character at position 1" in cli.error("add", input="a\0b", code=2)
    assert "lone surrogate" in cli.error("add", "caf\udce9", code=2)
    assert "byte 3 is 0xe9" in cli.error("add", input=b"caf\xe9", code=2)
    assert "control character" in cli.error("list", "--user", "caf\udce9", code=2)
    assert "no memory" in cli.error("show", "caf\udce9", code=3)


def test_a_damaged_file_is_reported_and_left_alone(cli: Cli) -> None:
    cli.home.mkdir()
    ledger = cli.home / "recollect.db"
    ledger.write_bytes(b"this is no database at all" * 1000)
    before = ledger.read_bytes()
    for command in (("add", "hello"), ("list",), ("export",)):
        assert f"{ledger} is damaged" in cli.error(*command, code=6)
    assert ledger.read_bytes() == before


def test_a_file_damaged_in_the_middle_is_reported(cli: Cli) -> None:
    cli.add("with some words " * 5_000)
    ledger = cli.home / "recollect.db"
    whole = ledger.read_bytes()
    ledger.write_bytes(whole[:8192] + b"\xff" * (len(whole) - 8192))
    (cli.home / "recollect.db-wal").unlink(missing_ok=True)
    assert "damaged" in cli.error("list", code=6)


def test_a_ledger_of_a_newer_recollect_is_refused_untouched(cli: Cli) -> None:
    cli.add("Likes tea")
    connection = apsw.Connection(str(cli.home / "recollect.db"))
    connection.execute("UPDATE meta SET value = '999' WHERE name = 'schema'")
    connection.close()
    for command in (("add", "hello"), ("list",), ("doctor",)):
        result = cli(*command, code=6)
        assert "schema 999" in result.output
        assert "pip install -U recollect" in result.output


def test_a_file_in_place_of_the_home_folder_is_an_error(cli: Cli) -> None:
    cli.home.parent.mkdir(exist_ok=True)
    cli.home.write_text("I am a file")
    for command in (("add", "hello"), ("list",)):
        assert "cannot make" in cli.error(*command, code=5)
    assert cli.home.read_text() == "I am a file"


def test_an_unknown_database_or_preset_or_setting_is_named(cli: Cli, tmp_path: Path) -> None:
    assert "mysql:// is not known" in cli.error("list", "--database", "mysql://x", code=2)
    assert "there is no preset 'x'" in cli.error("list", "--preset", "x", code=2)
    missing = cli.error("list", "--config", str(tmp_path / "nope.toml"), code=2)
    assert f"cannot read {tmp_path / 'nope.toml'}: No such file or directory; name an existing" in missing
    file = tmp_path / "wrong.toml"
    file.write_text("prot = 1\n")
    suggestion = "'prot'; did you mean port? `recollect config show` lists them"
    assert f"there is no setting {suggestion} (from file {file})" in cli.error("list", "--config", str(file), code=2)
    assert suggestion in cli.error("config", "show", "prot", code=2)


def test_a_misspelt_command_is_answered_with_the_most_similar(cli: Cli) -> None:
    assert "did you mean search?" in cli.error("serach", "x", code=2)
    assert "recollect --help" in cli.error("xyzzy", code=2)
    assert "recollect backup has the commands list, make, restore, verify" in cli.error("backup", "x.db", code=2)
    assert "Did you mean '--limit'?" in cli.error("list", "--limt", "5", code=2)


def test_an_empty_user_is_rejected(cli: Cli) -> None:
    assert "is empty" in cli.error("list", "--user", "", code=2)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"memory": "x"', "not JSON"),
        ("\xff", "not JSON"),
        ("[1]", "a line is a JSON object, not list"),
        ('{"memory": "x"}', "the source does not name its user"),
        ('{"memory": "", "user_id": "a"}', "memory is empty"),
        ('{"memory": "x", "user_id": "a", "category": "nonsense"}', "unknown category 'nonsense'"),
    ],
)
def test_an_invalid_line_of_an_import_is_named_and_the_others_are_imported(cli: Cli, line: str, reason: str) -> None:
    good = json.dumps({"memory": "Likes tea", "user_id": "a"})
    lines = f"{good}\n\n{line}\n{good.replace('tea', 'rain')}\n"
    output = cli("import", input=lines.encode("latin-1"), code=2).stdout
    assert f"Left out 1: {reason}" in output
    assert "stdin.jsonl, line 3" in output
    assert cli.json("stats")["memories"] == 2


def test_an_export_replaces_a_file_only_with_force(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "all.jsonl"
    file.write_text("precious")
    cli.add("Likes tea")
    assert "--force" in cli.error("export", str(file), code=2)
    assert file.read_text() == "precious"
    cli("export", str(file), "--force")
    assert "Likes tea" in file.read_text()
    folder = tmp_path / "nowhere"
    assert f"The folder {folder} does not exist; create it" in cli.error("export", str(folder / "all.jsonl"), code=2)
    assert not list(tmp_path.glob("*.part"))


def test_a_server_whose_port_is_taken_is_unavailable(cli: Cli) -> None:
    with bind_sockets("127.0.0.1", 0) as taken:
        report = cli.error("serve", "--port", str(taken.port), code=5)
        assert f"cannot listen on 127.0.0.1, port {taken.port}: Address already in use; stop" in report
        assert "choose another with --port" in report


@pytest.mark.parametrize(
    "command", [("import",), ("backup", "restore"), ("backup", "verify"), ("recall", "--messages")]
)
def test_a_missing_file_is_named_with_its_folder(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert str(tmp_path / "nope.file") in cli.error(*command, "nope.file", code=2)


def test_an_unexpected_error_is_reported_without_a_traceback(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: object) -> None:
        raise KeyError("surprise")

    monkeypatch.setattr("recollect.cli.context.CliContext.open", fail)
    assert "unexpected KeyError: 'surprise'" in cli.error("list", code=1)


def test_an_interrupt_ends_with_130(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(self: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("recollect.cli.context.CliContext.open", interrupt)
    assert "stopped" in cli.error("list", code=130)


def test_verbose_prints_the_traceback(tmp_path: Path) -> None:
    result = CliRunner().invoke(root, ["-v", "--home", str(tmp_path), "show", "nope"])
    assert result.exit_code == 3
    assert result.stderr.startswith("Traceback")
    assert result.stderr.splitlines()[-1].startswith("Error: no memory nope")
