"""What reaches the terminal: safe, aligned, in the width there is; and JSON that loses nothing."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

from recollect.cli import table, terminal
from recollect.cli.progress import format_duration, format_progress
from recollect.cli.table import Column, TableRow, display_width, print_table, truncate
from tests.support.cli_runner import Cli

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


def test_errors_are_as_safe(cli: Cli) -> None:
    assert cli.error("show", "\x1b[2J", code=3) == "Error: no memory \\x1b[2J\n"
    assert not UNSAFE.search(cli.error("list", "--where", EVIL, code=2))
    assert "\\x1b" in cli.error("\x1b[2J", code=2)


def test_json_keeps_every_character_and_prints_none_that_a_terminal_obeys(cli: Cli) -> None:
    id = cli.add(EVIL, "--meta", f"note={EVIL}")
    output = cli("show", id, "--json").stdout
    assert not UNSAFE.search(output)
    assert json.loads(output)["metadata"]["note"] == EVIL
    assert json.loads(cli("export").stdout)["metadata"] == {"note": EVIL}


def test_show_keeps_the_lines_of_a_memory_and_a_table_joins_them(cli: Cli) -> None:
    id = cli.add("first\nsecond")
    assert cli("show", id).stdout.startswith("first\nsecond\n")
    assert "first second" in cli("list").stdout


def test_a_pipe_gets_every_row_uncut_on_one_line(cli: Cli) -> None:
    text = "word " * 200 + "end"
    cli.add(text)
    assert [line.endswith(text) for line in cli("list").stdout.splitlines()] == [False, True]


def test_explain_tells_the_parts_of_each_score_and_the_time_of_each_step(cli: Cli) -> None:
    id = cli.add("Likes green tea")
    output = cli("search", "green tea", "--explain").stdout
    assert all(word in output for word in ("SCORE", "MEANING", "WORDS", "shares green, tea", id, "1 hit in"))
    assert "embed" in output
    report = cli.json("search", "green tea", "--explain")
    assert {"score", "scores", "why"} <= set(report["results"][0])
    assert {"embed", "gather", "fuse"} <= set(report["steps_us"])


def test_colours_are_left_out_where_nobody_sees_them(cli: Cli) -> None:
    cli.add("Likes tea")
    assert "\x1b" not in cli("list").stdout


@pytest.mark.parametrize("room", [50, 60, 80, 120, 200])
def test_a_table_fits_the_terminal(
    room: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(table, "width", lambda: room)
    columns = [
        Column("SCORE", right=True),
        Column("ID"),
        Column("CREATED", optional=True),
        Column("MEMORY", flexible=True, lines=2),
    ]
    texts = ["short", "many words " * 20, "日本語の長い文章です。" * 12, "x" * 300, "é" * 90, "👩‍💻 family " * 12]
    print_table(columns, [TableRow(("0.50", "i" * 30, "2026-03-15 10:00", text), notes=(text,)) for text in texts])
    lines = capsys.readouterr().out.splitlines()
    assert max(map(display_width, lines)) <= room
    assert ("CREATED" in lines[0]) == (room > 80)
    assert any("…" in line for line in lines)


def test_columns_line_up_whatever_script_they_hold(capsys: pytest.CaptureFixture[str]) -> None:
    print_table([Column("NAME"), Column("NEXT")], [("日本", "|"), ("abc", "|"), ("e\u0301", "|")])
    lines = capsys.readouterr().out.splitlines()[1:]
    assert {display_width(line.partition("|")[0]) for line in lines} == {6}


def test_a_cut_text_is_never_wider_than_asked() -> None:
    assert truncate("hello world", 11) == "hello world"
    assert truncate("hello world", 7) == "hello…"
    assert display_width(truncate("日本語日本語", 6)) <= 6


def test_a_line_is_clean_once_and_for_all() -> None:
    assert terminal.clean("a\r\n  b\tc\x1b") == "a b c\\x1b"
    assert terminal.clean_lines("a\r\nb\tc") == ["a", "b   c"]


def test_long_runs_of_anything_are_printed_in_no_time(cli: Cli) -> None:
    cli.add("a" + " " * 200_000 + "b")
    cli.add("x" * 200_000)
    began = time.process_time()
    cli("list")
    cli("search", "x")
    assert time.process_time() - began < 15


def test_a_bar_tells_done_total_share_elapsed_and_the_rest() -> None:
    visible = format_progress("Evaluating", 250, total=1_000, elapsed_s=20.0, columns=100)
    assert visible == f"Evaluating [{'#' * 7}{'.' * 23}] 250 of 1,000  25 %  0:20, about 1:00 left"


def test_before_there_is_anything_to_judge_by_nothing_is_foretold() -> None:
    assert format_progress("Embedding", 0, total=9, elapsed_s=60.0, columns=60).endswith("] 0 of 9  0 %  1:00")
    assert format_progress("Embedding", 1, total=9, elapsed_s=0.5, columns=60).endswith("] 1 of 9  11 %  0:00")


def test_the_bar_is_full_only_at_the_end() -> None:
    almost = format_progress("Embedding", 99_999, total=100_000, elapsed_s=5.0, columns=120)
    assert ".] 99,999 of 100,000  99 %  0:05, about 0:00 left" in almost
    assert "#] 9 of 9  100 %" in format_progress("Embedding", 9, total=9, elapsed_s=5.0, columns=120)


@pytest.mark.parametrize("total", [None, 0, 6])
def test_without_a_total_that_holds_it_is_a_count(total: int | None) -> None:
    assert format_progress("Importing", 1_234, total=total, elapsed_s=75.0, columns=80) == "Importing 1,234  1:15"


@pytest.mark.parametrize("columns", [1, 2, 20, 40, 60, 80, 200])
@pytest.mark.parametrize("elapsed_s", [0.0, 59.9, 100_000.0])
def test_the_line_never_wraps_and_its_bar_never_changes_its_width(columns: int, elapsed_s: float) -> None:
    lines = [
        format_progress("Evaluating", n, total=10_000, elapsed_s=elapsed_s, columns=columns)
        for n in range(0, 10_001, 7)
    ]
    assert max(map(len, lines)) < columns
    assert len({len(visible.partition("]")[0]) for visible in lines if "[" in visible}) <= 1


def test_times_are_read_as_on_a_clock() -> None:
    assert [format_duration(s) for s in (0, 7.9, 60, 750, 3_723, 360_000)] == [
        "0:00",
        "0:07",
        "1:00",
        "12:30",
        "1:02:03",
        "100:00:00",
    ]


def imported(home: Path, *, columns: int, piped: bool = False) -> bytes:
    """What `recollect import` of 600 memories shows on a terminal of that width."""
    lines = "\n".join(json.dumps({"memory": f"Note {n}", "user_id": "ana"}) for n in range(600))
    (home / "notes.jsonl").write_text(lines)
    terminal, inside = pty.openpty()
    fcntl.ioctl(inside, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    command = [sys.executable, "-m", "recollect.cli.main", "import", *([] if piped else [str(home / "notes.jsonl")])]
    done = subprocess.run(
        command,
        input=lines.encode() if piped else None,
        stdout=subprocess.PIPE,
        stderr=inside,
        env={**os.environ, "RECOLLECT_HOME": str(home)},
        timeout=200,
    )
    os.close(inside)
    output = os.read(terminal, 100_000)
    os.close(terminal)
    assert done.stdout.startswith(b"Added 600 memories")
    assert output.endswith(b"\r\x1b[K")
    return output


def test_an_import_counts_the_lines_of_a_file_first(tmp_path: Path) -> None:
    assert re.search(rb"\rImporting \[#+\.+\] 500 of 600  83 %  0:\d\d", imported(tmp_path, columns=100))


def test_lines_from_a_pipe_come_only_once_and_are_only_counted(tmp_path: Path) -> None:
    assert re.search(rb"\rImporting 500  0:\d\d\x1b", imported(tmp_path, columns=100, piped=True))


def test_on_a_narrow_terminal_the_bar_gives_way_to_the_numbers(tmp_path: Path) -> None:
    assert re.search(rb"\rImporting 500 of 600  83 %  0:", imported(tmp_path, columns=42))
