"""recollect completion"""

from __future__ import annotations

import click

from recollect.cli.command import Command
from recollect.cli.given import CliContext, pass_cli
from recollect.cli.terminal import print_json, print_line

_INSTALL = {
    "bash": "recollect completion bash > ~/.local/share/bash-completion/completions/recollect",
    "zsh": 'recollect completion zsh > "${fpath[1]}/_recollect"',
    "fish": "recollect completion fish > ~/.config/fish/completions/recollect.fish",
}


@click.command(cls=Command, whose="", examples=("recollect completion bash", *_INSTALL.values()))
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
