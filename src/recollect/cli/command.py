"""What our commands have in common: shared options, help in sections, and examples that run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from recollect.cli.given import SectionOption, shared_options


class Command(click.Command):
    """A command with the shared options; `whose` names those that say whose memory is meant."""

    def __init__(self, *args: Any, scope_options: str = "user", examples: Sequence[str] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params += shared_options(scope_options=scope_options)
        self.examples = tuple(examples)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Its own options first, then those that every command has."""
        write_options(self, ctx, formatter)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Examples at the end, where the eye lands."""
        with formatter.section("Examples"):
            for example in self.examples:
                formatter.write(f"  $ {example}\n")


def write_options(command: click.Command, ctx: click.Context, formatter: click.HelpFormatter) -> None:
    """Write the options of a command by section."""
    sections: dict[str, list[tuple[str, str]]] = {"Options": []}
    for option in command.get_params(ctx):
        record = option.get_help_record(ctx)
        if record is not None and isinstance(option, click.Option):
            section = option.section if isinstance(option, SectionOption) else "Options"
            sections.setdefault(section, []).append(record)
    for section, records in sections.items():
        if records:
            with formatter.section(section):
                formatter.write_dl(records)
