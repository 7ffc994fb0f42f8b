"""Run `recollect` in this process, in a temporary home."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import shlex
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

from click.testing import CliRunner, Result

from recollect.cli.main import root

COMMAND = [sys.executable, "-m", "recollect.cli.main"]


class Terminal:
    """A terminal that collects its output; `inside` is the end for the process."""

    def __init__(self, screen: int, inside: int) -> None:
        self._screen, self.inside = screen, inside
        self._output = bytearray()
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        # Reading fails once no process has the other end open.
        try:
            while piece := os.read(self._screen, 10_000):
                self._output += piece
        except OSError:
            return

    def output(self) -> bytes:
        """Return all output, once the process has ended."""
        os.close(self.inside)
        self._reader.join(60)
        return bytes(self._output)


@contextmanager
def open_terminal(*, columns: int = 80) -> Iterator[Terminal]:
    """Open a terminal of a width."""
    screen, inside = pty.openpty()
    fcntl.ioctl(inside, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    try:
        yield Terminal(screen, inside)
    finally:
        os.close(screen)


def run_with_progress(home: Path, *args: str, columns: int = 100, input: bytes | None = None) -> tuple[bytes, bytes]:
    """Run a command with a terminal as standard error; return standard output, and the text shown meanwhile.

    The progress bar must be removed in the end: the cursor goes up a line, which is erased.
    """
    with open_terminal(columns=columns) as terminal:
        done = subprocess.run(
            [*COMMAND, *args],
            input=input,
            stdout=subprocess.PIPE,
            stderr=terminal.inside,
            env={**os.environ, "RECOLLECT_HOME": str(home), "TERM": "xterm"},
            timeout=200,
            check=True,
        )
        shown = terminal.output()
    assert shown.endswith(b"\x1b[1A\x1b[2K"), shown[-200:]
    return done.stdout, re.sub(rb"\x1b\[[0-9;?]*[a-zA-Z]", b"", shown)


class Cli:
    """Commands as a person types them; every one must end without a traceback."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self._runner = CliRunner()

    def __call__(self, *args: str, input: str | bytes | None = None, code: int = 0) -> Result:
        """Run a command; it must end with that exit code."""
        environment = {"RECOLLECT_HOME": str(self.home), "OPENAI_API_KEY": ""}
        result = self._runner.invoke(root, list(args), input=input, env=environment)
        assert result.exit_code == code, f"{args} ended with {result.exit_code}:\n{result.output}"
        assert "Traceback" not in result.output
        return result

    def json(self, *args: str, input: str | bytes | None = None) -> Any:
        """Run a command with --json, and return the one document that it prints."""
        return json.loads(self(*args, "--json", input=input).stdout)

    def add(self, text: str, *options: str) -> str:
        """Add a memory; return its id."""
        return str(self.json("add", text, *options)["id"])

    def error(self, *args: str, code: int, input: str | bytes | None = None) -> str:
        """Run a command that must fail with that code and print nothing on stdout; return the message."""
        result = self(*args, input=input, code=code)
        assert result.stdout == ""
        return result.stderr

    def typed(self, line: str, *, id: str) -> str:
        """Run a line of a shell, with ID for a memory's id, an optional pipe and redirection; return the output."""
        before, _, command = line.rpartition("| ")
        words = shlex.split(command.replace("\\$", "$"))
        into = self.home / words[words.index(">") + 1].split("/")[-1] if ">" in words else None
        words = words[: words.index(">")] if ">" in words else words
        source = shlex.split(before)
        text = None
        if source:
            text = " ".join(source[1:]) + "\n" if source[0] == "echo" else (self.home / source[1]).read_text()
        words = [re.sub(r"^ID$", id, word) for word in words[1:]]
        words = [str(self.home / word) if word.endswith((".jsonl", ".backup", ".md")) else word for word in words]
        result = self(*words, input=text)
        if into is None:
            return result.output
        into.write_text(result.stdout)
        return result.stderr
