"""Output: escaped control characters, tables that fit the terminal, lossless JSON, progress."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest
from rich.cells import cell_len

from recollect.cli import output
from recollect.cli.output import Column, TableRow, print_table, truncate
from tests.support.cli_runner import Cli, run_with_progress

EVIL = "evil \x1b[2J\x1b]0;title\x07 \x9b31m \u202edrow\u2069 \x7f\x08 end\r\nsecond\tline \u2028 third"
UNSAFE = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    return Cli(tmp_path / "home")


def test_nothing_that_was_stored_can_move_the_cursor(cli: Cli) -> None:
    id = cli.add(EVIL, "--meta", f"note={EVIL}", "--key", "k", "--value", EVIL)
    cli("update", id, "--importance", "0.9", "--why", "because \x1b[31m of \x9b31m this")
    cli("remember", EVIL, "--name", "\x1b[31mred", "--session", "s")
    commands = [
        ("list", "--turns"), ("search", "evil"), ("search", "evil", "--explain"), ("recall", "evil"),
        ("recall", "evil", "--explain"), ("show", id), ("history",),
        ("history", id), ("doctor",), ("forget", id), ("undo",), ("add", EVIL, "--key", "k", "--value", "x"),
    ]  # fmt: skip
    for command in commands:
        output = cli(*command).output
        assert not UNSAFE.search(output), f"{command} let {UNSAFE.search(output)} through"
    # What is no text of its own is kept as it was given, and shown harmless.
    assert "\\u001b[2J" in cli("show", id).stdout


def test_errors_escape_control_characters(cli: Cli) -> None:
    assert cli.error("show", "\x1b[2J", code=3).startswith("Error: no memory \\x1b[2J ")
    assert not UNSAFE.search(cli.error("list", "--where", EVIL, code=2))
    assert "\\x1b" in cli.error("\x1b[2J", code=2)


def test_json_escapes_control_characters_without_loss(cli: Cli) -> None:
    id = cli.add(EVIL, "--meta", f"note={EVIL}")
    output = cli("show", id, "--json").stdout
    assert not UNSAFE.search(output)
    assert json.loads(output)["metadata"]["note"] == EVIL
    assert json.loads(cli("export").stdout)["metadata"] == {"note": EVIL}


def test_show_keeps_lines_and_a_table_joins_them(cli: Cli) -> None:
    id = cli.add("first\nsecond")
    assert cli("show", id).stdout.startswith("first\nsecond\n")
    assert "first second" in cli("list").stdout


def test_a_pipe_gets_complete_rows(cli: Cli) -> None:
    text = "word " * 200 + "end"
    cli.add(text)
    assert [line.endswith(text) for line in cli("list").stdout.splitlines()] == [False, True]


@pytest.mark.parametrize("columns_shown", [50, 60, 80, 120, 200])
def test_a_table_fits_the_terminal(
    columns_shown: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(output, "terminal_width", lambda: columns_shown)
    columns = [
        Column("SCORE", right=True),
        Column("ID"),
        Column("CREATED", optional=True),
        Column("FATE", flexible=True),
        Column("MEMORY", flexible=True, lines=2),
    ]
    texts = ["short", "many words " * 20, "日本語の長い文章です。" * 12, "x" * 300, "é" * 90, "👩‍💻 family " * 12]
    print_table(
        columns, [TableRow(("0.5", "i" * 12, "2026-03-15 10:00", "kept", text), notes=(text,)) for text in texts]
    )
    lines = capsys.readouterr().out.splitlines()
    assert max(map(cell_len, lines)) <= columns_shown
    assert ("CREATED" in lines[0]) == (columns_shown > 80)
    assert any("…" in line for line in lines)


def test_columns_align_in_every_script(capsys: pytest.CaptureFixture[str]) -> None:
    print_table([Column("NAME"), Column("NEXT")], [("日本", "|"), ("abc", "|"), ("e\u0301", "|")])
    lines = capsys.readouterr().out.splitlines()[1:]
    assert {cell_len(line.partition("|")[0]) for line in lines} == {6}


def test_a_truncated_text_is_never_wider_than_the_limit() -> None:
    assert truncate("hello world", 11) == "hello world"
    assert truncate("hello world", 7) == "hello…"
    assert truncate("hello world", None) == "hello world"
    assert cell_len(truncate("日本語日本語", 6)) <= 6


def test_clean_joins_lines_and_escapes_control_characters() -> None:
    assert output.clean("a\r\n  b\tc\x1b") == "a b c\\x1b"
    assert output.clean_lines("a\r\nb\tc") == ["a", "b   c"]


def test_long_texts_are_printed_in_linear_time(cli: Cli) -> None:
    cli.add("a" + " " * 200_000 + "b")
    cli.add("x" * 200_000)
    began = time.process_time()
    cli("list")
    cli("search", "x")
    assert time.process_time() - began < 15


LINES = "\n".join(json.dumps({"memory": f"Note {n}", "user_id": "ana"}) for n in range(60))


def test_an_import_shows_a_count(tmp_path: Path) -> None:
    printed, shown = run_with_progress(tmp_path, "import", input=LINES.encode())
    assert b"Added 60;" in printed
    assert re.search(rb"Importing 60 0:00:\d\d", shown)
