"""Runs `recollect` in this process, in a home of its own."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from recollect.cli.main import root


class Cli:
    """Commands as a person types them; every one must end without a traceback."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self._runner = CliRunner()

    def __call__(self, *args: str, input: str | bytes | None = None, code: int = 0) -> Result:
        """Run it and see that it ends with that exit code."""
        environment = {"RECOLLECT_HOME": str(self.home), "OPENAI_API_KEY": ""}
        result = self._runner.invoke(root, list(args), input=input, env=environment)
        assert result.exit_code == code, f"{args} ended with {result.exit_code}:\n{result.output}"
        assert "Traceback" not in result.output
        return result

    def json(self, *args: str, input: str | bytes | None = None) -> Any:
        """Run it with --json: exactly one document comes out."""
        return json.loads(self(*args, "--json", input=input).stdout)

    def add(self, text: str, *options: str) -> str:
        """Add a memory; gives its id."""
        return str(self.json("add", text, *options)["id"])

    def error(self, *args: str, code: int, input: str | bytes | None = None) -> str:
        """Run what must fail with that code and nothing on stdout; gives the message."""
        result = self(*args, input=input, code=code)
        assert result.stdout == ""
        return result.stderr

    def typed(self, line: str, *, id: str) -> str:
        """Run a line of a shell, with ID for a memory's id, a pipe before it and > after; gives what it shows."""
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
