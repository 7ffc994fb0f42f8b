"""Help and docs/cli.md: complete, and every example in them runs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from recollect.cli.context import Command
from recollect.cli.main import COMMANDS, root
from recollect.model.ids import new_id
from tests.support.cli_runner import Cli
from tests.support.paths import ROOT

PAGE = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```console\n(.*?)^```", re.DOTALL | re.MULTILINE)
ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}")


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    return Cli(tmp_path)


def commands(group: click.Group = root, path: str = "") -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield f"{path}{name}", command
        if isinstance(command, click.Group):
            yield from commands(command, f"{path}{name} ")


ALL = dict(commands())


def examples(text: str) -> list[tuple[str, str]]:
    """Return the commands of a page in order, each with its output."""
    results: list[tuple[str, str]] = []
    for line in "".join(BLOCK.findall(text)).splitlines():
        if line.startswith("$ "):
            results.append((line[2:], ""))
        else:
            results[-1] = (results[-1][0], results[-1][1] + line + "\n")
    return results


def stable(output: str, home: Path) -> str:
    """Return the output without ids, times, scores, sizes and the home folder."""
    output = ID.sub("ID", re.sub(rf"({re.escape(str(home))}|~/\.recollect)/?", "", output))
    output = re.sub(
        r"\d{4}-\d\d-\d\d.\d\d:\d\d(:\d\d)?(\.\d+\+\d\d:\d\d)?( \S+$)?", "TIME", output, flags=re.MULTILINE
    )
    output = re.sub(r"\d+\.\d+|\d+,\d+ bytes|(?<=entries )[\d,]+", "N", output)
    output = re.sub(r"\brk_\w{43}\b", "rk_KEY", output)
    output = re.sub(r"(very near|near|distant) in", "near in", output)
    return re.sub(r" +", " ", re.sub(r"^(ok|warn|fail) .*", "CHECK", output, flags=re.MULTILINE))


@pytest.mark.parametrize("path", ALL)
def test_help_has_the_purpose_the_options_and_an_example(cli: Cli, path: str) -> None:
    command = ALL[path]
    purpose = (command.help or "").splitlines()[0]
    assert purpose.endswith(".")
    if path in COMMANDS:
        assert COMMANDS[path].summary == purpose
    if isinstance(command, click.Group):
        return
    assert isinstance(command, Command)
    assert command.examples
    output = cli(*path.split(), "--help").stdout
    assert all(example in output for example in command.examples)
    for option in command.params:
        assert isinstance(option, click.Argument) or option.help, f"{path}: {option.name} has no help"


# The server and the worker never end. The examples of eval need files, an agent needs a model, and splitting tables a
# PostgreSQL: they have tests of their own.
OTHERWISE = ("serve", "ui", "worker", "agent", "partition")


@pytest.mark.parametrize("path", [path for path in ALL if path not in OTHERWISE and not path.startswith("eval")])
def test_the_examples_in_help_run(cli: Cli, path: str) -> None:
    command = ALL[path]
    if isinstance(command, click.Group):
        return
    id = cli.add("The budget for the Hawaii trip is 9,000 dollars", "--user", "alex", "--tag", "travel")
    cli("export", str(cli.home / "memories.jsonl"))
    cli("export", str(cli.home / "alex.jsonl"))
    (cli.home / "notes.md").write_text("- Likes tea\n")
    if path == "export":
        (cli.home / "memories.jsonl").unlink()
    if path == "erase":
        cli("remember", "I moved to Lisbon", "--session", "monday", "--user", "alex")
    if path == "review":
        line = {**cli.json("show", id, "--user", "alex"), "id": new_id(), "memory": "Answer in French"}
        id = line["id"]
        cli("import", input=json.dumps({**line, "status": "review"}).encode())
    if path == "keys revoke":
        cli("keys", "add", "--user", "alex", "--name", "phone")
    if path == "undo":
        for n in range(12):
            cli.add(f"Memory number {n}", "--user", "alex")
    assert isinstance(command, Command)
    for example in command.examples:
        cli.typed(example, id=id)


def test_every_command_is_in_the_page() -> None:
    assert [name for name in COMMANDS if f"recollect {name}" not in PAGE] == []


def test_the_page_about_moving_shows_the_output_of_its_commands(cli: Cli) -> None:
    (cli.home / "MEMORY.md").write_text("# Food\n\n- Likes green tea\n- Allergic to peanuts\n")
    for command, printed in examples((ROOT / "docs" / "moving.md").read_text()):
        output, rendered = (
            re.sub(r"replaced-\w+", "ASIDE", stable(each, cli.home)) for each in (cli.typed(command, id=""), printed)
        )
        assert output == rendered, command


def test_the_page_shows_the_output_of_its_commands(cli: Cli) -> None:
    id = ""
    for command, printed in examples(PAGE):
        visible = cli.typed(command, id=id)
        id = id or ID.findall(visible)[0]
        visible, output = stable(visible, cli.home), stable(printed, cli.home)
        if command.startswith("recollect jobs"):
            # What is said and what is to be done now and then are queued at the same moment, by two hands.
            visible, output = ("\n".join(sorted(each.splitlines())) for each in (visible, output))
        assert visible == output, command
