"""recollect eval"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

import click

import recollect

PATH = click.Path(path_type=Path)


class _InOrder(click.Group):
    """Lists its commands in the order of their definition."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


@click.group(cls=_InOrder)
def eval_() -> None:
    """Measure retrieval quality on your data.

    Your memories are neither read nor changed: each measurement uses a temporary ledger. It uses the settings in
    force, such as the embedder, so that two setups can be compared. The commands need a checkout of the source.
    """


def _add_benchmarks() -> None:
    """Import the commands from the folder evals, which is in the repository but not in the package."""
    checkout = Path(recollect.__file__).parents[2]
    if (checkout / "evals" / "commands.py").exists():
        if str(checkout) not in sys.path:
            sys.path.append(str(checkout))
        import_module("evals.commands")


_add_benchmarks()
