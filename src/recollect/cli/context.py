"""The options that every command takes, before or after its name, and what they open."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

import click

from recollect.cli.terminal import print_line

if TYPE_CHECKING:
    from recollect.client import AsyncMemory
    from recollect.config.settings import LoadedSettings
    from recollect.sync import Memory


DEFAULT_USER = "default"


class ScopeArgs(TypedDict):
    """Whose memory it is, as the Python API names it."""

    user_id: str
    project_id: str | None
    session_id: str | None


@dataclass(slots=True)
class CliContext:
    """What those options were given as; a command's own win over those before its name."""

    home: str | None = None
    database: str | None = None
    config: str | None = None
    preset: str | None = None
    json: bool = False
    verbose: bool = False
    user: str | None = None
    project: str | None = None
    session: str | None = None

    @property
    def user_id(self) -> str:
        """The user that was named, or the one that stands for nobody in particular."""
        return DEFAULT_USER if self.user is None else self.user

    @property
    def scope_args(self) -> ScopeArgs:
        """Whose memory is meant."""
        return {"user_id": self.user_id, "project_id": self.project, "session_id": self.session}

    def load(self, extra: Mapping[str, Any] | None = None) -> LoadedSettings:
        """The settings in force."""
        from recollect.config.settings import load

        overrides = {"home": self.home, "database": self.database, "preset": self.preset, **(extra or {})}
        return load(overrides, file=Path(self.config).expanduser() if self.config else None)

    def open(self, extra: Mapping[str, Any] | None = None) -> Memory:
        """The memory that the settings name; use it in a `with`."""
        from recollect.sync import Memory

        configure_logging(verbose=self.verbose)
        return Memory(settings=self.load(extra).settings)

    def open_async(self) -> AsyncMemory:
        """The same to await, for what hands over many values one by one."""
        from recollect.client import AsyncMemory

        configure_logging(verbose=self.verbose)
        return AsyncMemory(settings=self.load().settings)


pass_cli = click.make_pass_decorator(CliContext, ensure=True)


class SectionOption(click.Option):
    """An option whose help stands in a section of its own."""

    def __init__(self, *names: Any, section: str, **attributes: Any) -> None:
        super().__init__(*names, **attributes)
        self.section = section


class SharedOption(SectionOption):
    """An option that goes into `Given` instead of to the command."""

    def __init__(self, *names: str, section: str, **attributes: Any) -> None:
        super().__init__(list(names), section=section, expose_value=False, callback=_store_option, **attributes)


def _store_option(context: click.Context, option: click.Parameter, value: Any) -> Any:
    if value and option.name:
        setattr(context.ensure_object(CliContext), option.name, value)
    elif isinstance(value, str) and option.name in ("user", "home"):
        raise click.BadParameter("it is empty.", context, option)
    return value


def _complete_preset(context: click.Context, option: click.Parameter, incomplete: str) -> list[Any]:
    from click.shell_completion import CompletionItem

    from recollect.config.settings import preset_names

    return [CompletionItem(name) for name in preset_names() if name.startswith(incomplete)]


def shared_options(*, scope_options: str = "") -> list[click.Option]:
    """The shared options; of user, project and session those that `whose` names."""
    section = "Whose memory"
    options_by_name = {
        "user": SharedOption(
            "--user", "-u", metavar="ID", section=section, help=f"The user. [default: {DEFAULT_USER}]"
        ),
        "everyone": SharedOption(
            "--user", "-u", metavar="ID", section=section, help="One user; without it, everyone."
        ),
        "project": SharedOption("--project", metavar="ID", section=section, help="One of the user's projects."),
        "session": SharedOption("--session", metavar="ID", section=section, help="One session, such as a chat."),
    }
    section = "Everywhere"
    return [
        *(options_by_name[name] for name in scope_options.split()),
        SharedOption(
            "--home", metavar="FOLDER", section=section, help="Where the ledger is. [default: ~/.recollect]"
        ),
        SharedOption(
            "--database", metavar="ADDRESS", section=section, help="A ledger file or a postgresql:// address."
        ),
        SharedOption("--config", metavar="FILE", section=section, help="A settings file, TOML or YAML."),
        SharedOption(
            "--preset", metavar="NAME", section=section, shell_complete=_complete_preset, help="Named defaults."
        ),
        SharedOption("--json", is_flag=True, section=section, help="Answer in JSON, for programs."),
        SharedOption(
            "--verbose", "-v", is_flag=True, section=section, help="Tell more, and show where an error arose."
        ),
    ]


class _StderrHandler(logging.Handler):
    """Log lines as remarks on stderr."""

    def emit(self, record: logging.LogRecord) -> None:
        print_line(f"{record.levelname.lower()}: {record.getMessage()}", err=True)


def configure_logging(*, verbose: bool) -> None:
    """Show warnings of the library as remarks; with `verbose`, what it is doing as well."""
    logger = logging.getLogger("recollect")
    logger.handlers[:] = [_StderrHandler()]
    logger.propagate = False
    logger.setLevel(logging.DEBUG if verbose else logging.WARNING)


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
