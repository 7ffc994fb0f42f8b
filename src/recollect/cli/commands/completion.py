"""recollect completion"""

from __future__ import annotations

import click

from recollect.cli.command import Command
from recollect.cli.given import Given, pass_given
from recollect.cli.terminal import print_json, say

_INSTALL = {
    "bash": "recollect completion bash > ~/.local/share/bash-completion/completions/recollect",
    "zsh": 'recollect completion zsh > "${fpath[1]}/_recollect"',
    "fish": "recollect completion fish > ~/.config/fish/completions/recollect.fish",
}


@click.command(cls=Command, whose="", examples=("recollect completion bash", *_INSTALL.values()))
@click.argument("shell", type=click.Choice(list(_INSTALL)))
@pass_given
def completion(given: Given, shell: str) -> None:
    """Print the completion script for a shell."""
    from click.shell_completion import get_completion_class

    from recollect.cli.main import root

    kind = get_completion_class(shell)
    assert kind is not None
    script = kind(root, {}, "recollect", "_RECOLLECT_COMPLETE").source()
    if given.json:
        print_json({"shell": shell, "script": script, "install": _INSTALL[shell]})
        return
    click.echo(script.rstrip())
    # At the end: zsh looks for its own mark on the first line.
    say(f"# To install: {_INSTALL[shell]}")
