"""The bar on the last line of the terminal: what it tells, how wide it is, and who gets to see it."""

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
from pathlib import Path

import pytest

from recollect.cli.progress import format_duration, format_progress


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
