"""recollect config and completion."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from recollect.cli.context import CliContext, command, usage_error
from recollect.cli.output import Column, dim, print_line, print_table


@click.group()
def config() -> None:
    """Show the settings in force and their sources."""


_SETTING_COLUMNS = [
    Column("NAME", style="bold"),
    Column("VALUE", flexible=True, lines=4),
    Column("VARIABLE", style="dim"),
    Column("SOURCE", flexible=True, lines=4),
]


@command("recollect config show", "recollect config show port --json", scope="", group=config)
@click.argument("name", metavar="[NAME]", required=False)
def show(cli: CliContext, name: str | None) -> None:
    """Show every setting: its value, its environment variable, and the source of the value.

    With NAME only that one. Secrets are masked.
    """
    from recollect.config.settings import rows, suggest_setting

    selected = [row for row in rows(cli.load()) if name in (None, row.name)]
    if not selected:
        raise usage_error(f"There is no setting {name!r}; {suggest_setting(name or '')}.")
    if cli.replied({"settings": [asdict(row) for row in selected]}):
        return
    cells = [
        (row.name, row.value or "-", row.variable, row.source.removesuffix(f" {row.variable}")) for row in selected
    ]
    print_table(_SETTING_COLUMNS, cells)


@command("recollect config path", scope="", group=config)
def path(cli: CliContext) -> None:
    """Print the path of the settings file."""
    from recollect.config.settings import FILE_NAMES

    home = cli.load().settings.home
    explicit = Path(cli.config).expanduser() if cli.config else None
    file = explicit or next((home / name for name in FILE_NAMES if (home / name).is_file()), home / FILE_NAMES[0])
    cli.reply({"file": str(file), "exists": file.is_file(), "home": str(home)}, str(file))
    if not cli.json and not file.is_file():
        print_line(dim("It does not exist yet; recollect config show lists the settings."), err=True)


_INSTALL = {
    "bash": "recollect completion bash > ~/.local/share/bash-completion/completions/recollect",
    "zsh": 'recollect completion zsh > "${fpath[1]}/_recollect"',
    "fish": "recollect completion fish > ~/.config/fish/completions/recollect.fish",
}


@command("recollect completion bash", *_INSTALL.values(), scope="")
@click.argument("shell", type=click.Choice(list(_INSTALL)))
def completion(cli: CliContext, shell: str) -> None:
    """Print the completion script for a shell."""
    from click.shell_completion import get_completion_class

    from recollect.cli.main import root

    kind = get_completion_class(shell)
    assert kind is not None
    script = kind(root, {}, "recollect", "_RECOLLECT_COMPLETE").source()
    if cli.replied({"shell": shell, "script": script, "install": _INSTALL[shell]}):
        return
    click.echo(script.rstrip())
    # At the end, because zsh needs its own marker on the first line.
    print_line(f"# To install: {_INSTALL[shell]}")
