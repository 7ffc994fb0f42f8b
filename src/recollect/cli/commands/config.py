"""recollect config"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from recollect.cli.context import CliContext, Command, pass_cli
from recollect.cli.table import Column, print_table
from recollect.cli.terminal import dim, print_json, print_line

if TYPE_CHECKING:
    from recollect.config.settings import SettingRow


@click.group()
def config() -> None:
    """Show the settings in force and where they come from."""


@config.command(
    cls=Command, scope_options="", examples=("recollect config show", "recollect config show port --json")
)
@click.argument("name", metavar="[NAME]", required=False)
@pass_cli
def show(cli: CliContext, name: str | None) -> None:
    """Show every setting: its value, its environment variable, and where the value comes from.

    With NAME only that one. Secrets are masked.
    """
    from recollect.config.settings import rows

    selected = [row for row in rows(cli.load()) if name in (None, row.name)]
    if not selected:
        raise click.UsageError(f"There is no setting {name!r}.", click.get_current_context())
    if cli.json:
        print_json({"settings": [asdict(row) for row in selected]})
        return
    columns = [
        Column("NAME", style="bold"),
        Column("VALUE", flexible=True, lines=4),
        Column("VARIABLE", style="dim"),
        Column("SOURCE", flexible=True, lines=4),
    ]
    print_table(columns, [(row.name, row.value or "-", row.variable, _source(row)) for row in selected])


def _source(row: SettingRow) -> str:
    """Where the value comes from; the variable's own name stands in the column before."""
    return row.source.removesuffix(f" {row.variable}")


@config.command(cls=Command, scope_options="", examples=("recollect config path",))
@pass_cli
def path(cli: CliContext) -> None:
    """Tell which settings file is read, or where one would be."""
    from recollect.config.settings import FILE_NAMES

    home = cli.load().settings.home
    explicit = Path(cli.config).expanduser() if cli.config else None
    file = explicit or next((home / name for name in FILE_NAMES if (home / name).is_file()), home / FILE_NAMES[0])
    if cli.json:
        print_json({"file": str(file), "exists": file.is_file(), "home": str(home)})
        return
    print_line(str(file))
    if not file.is_file():
        print_line(dim("It is not there yet; recollect config show tells what can stand in it."), err=True)


_INSTALL = {
    "bash": "recollect completion bash > ~/.local/share/bash-completion/completions/recollect",
    "zsh": 'recollect completion zsh > "${fpath[1]}/_recollect"',
    "fish": "recollect completion fish > ~/.config/fish/completions/recollect.fish",
}


@click.command(cls=Command, scope_options="", examples=("recollect completion bash", *_INSTALL.values()))
@click.argument("shell", type=click.Choice(list(_INSTALL)))
@pass_cli
def completion(cli: CliContext, shell: str) -> None:
    """Print the completion script for a shell."""
    from click.shell_completion import get_completion_class

    from recollect.cli.main import root

    kind = get_completion_class(shell)
    assert kind is not None
    script = kind(root, {}, "recollect", "_RECOLLECT_COMPLETE").source()
    if cli.json:
        print_json({"shell": shell, "script": script, "install": _INSTALL[shell]})
        return
    click.echo(script.rstrip())
    # At the end: zsh looks for its own mark on the first line.
    print_line(f"# To install: {_INSTALL[shell]}")
