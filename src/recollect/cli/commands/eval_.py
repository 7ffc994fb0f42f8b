"""recollect eval"""

from __future__ import annotations

import click

from recollect.cli.commands.eval_compare import compare
from recollect.cli.commands.eval_conversations import benchmark_commands
from recollect.cli.commands.eval_prefilter import prefilter
from recollect.cli.commands.eval_recipe import recipe


class _InOrder(click.Group):
    """Lists its commands as they were added, the nearest to a user's own data first."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


@click.group(cls=_InOrder)
def eval_() -> None:
    """Measure how well it finds, on data of yours.

    Nothing of yours is read or changed: each measurement fills a ledger of its own in a folder that goes away. The
    settings in force count, such as the embedder, so that two setups can be compared.
    """


for each in (recipe, *benchmark_commands(), compare, prefilter):
    eval_.add_command(each)
