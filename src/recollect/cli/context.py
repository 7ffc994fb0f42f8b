"""The options shared by all commands, the context object that commands receive, and the exit codes."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypedDict, TypeVar

import click

from recollect import errors
from recollect.cli.output import Column, StyledText, TableRow, clean, print_json, print_line, print_table

if TYPE_CHECKING:
    from recollect.client import AsyncMemory
    from recollect.config.settings import LoadedSettings, Settings
    from recollect.sync import Memory


DEFAULT_USER = "default"


class Serializable(Protocol):
    """A value that can be printed as JSON."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""


_T = TypeVar("_T", bound=Serializable)


class ScopeArgs(TypedDict):
    """A scope as the Python API names it."""

    user_id: str
    project_id: str | None
    session_id: str | None


@dataclass(slots=True)
class CliContext:
    """The values of the shared options; those after a command's name override those before it."""

    home: str | None = None
    database: str | None = None
    config: str | None = None
    preset: str | None = None
    json: bool = False
    verbose: bool = False
    user: str | None = None
    project: str | None = None
    session: str | None = None
    environ: Mapping[str, str] = field(default_factory=dict)

    @property
    def user_id(self) -> str:
        return DEFAULT_USER if self.user is None else self.user

    @property
    def scope_args(self) -> ScopeArgs:
        """The scope as arguments of the Python API."""
        return {"user_id": self.user_id, "project_id": self.project, "session_id": self.session}

    @property
    def within(self) -> str:
        """The project and session for a message, such as " in session monday"."""
        return "".join(f" in {name} {value}" for name in ("project", "session") if (value := getattr(self, name)))

    def load(self, extra: Mapping[str, Any] | None = None) -> LoadedSettings:
        from recollect.config.settings import load

        overrides = {"home": self.home, "database": self.database, "preset": self.preset, **(extra or {})}
        return load(overrides, file=Path(self.config).expanduser() if self.config else None)

    def settings(self, extra: Mapping[str, Any] | None = None) -> Settings:
        """Configure logging and load the settings in force."""
        logger = logging.getLogger("recollect")
        logger.handlers[:] = [_StderrHandler()]
        logger.propagate = False
        logger.setLevel(logging.DEBUG if self.verbose else logging.WARNING)
        return self.load(extra).settings

    def open(self, extra: Mapping[str, Any] | None = None) -> Memory:
        from recollect.sync import Memory

        return Memory(settings=self.settings(extra))

    def open_async(self) -> AsyncMemory:
        from recollect.client import AsyncMemory

        return AsyncMemory(settings=self.settings())

    def replied(self, document: Any) -> bool:
        """Print the document with --json; return whether that is the whole reply."""
        if self.json:
            print_json(document)
        return self.json

    def reply(self, document: Any, *pieces: str | StyledText) -> None:
        """Print the document with --json, otherwise the pieces as a line."""
        if not self.replied(document):
            print_line(*pieces)

    def reply_rows(
        self,
        items: Iterable[_T],
        columns: Sequence[Column],
        to_row: Callable[[_T], TableRow | Sequence[str]],
        *empty: str | StyledText,
    ) -> None:
        """Print the items as JSON results or as a table; `empty` is the message if there are none."""
        rows = list(items)
        if not rows or self.json:
            self.reply(to_results(rows), *empty)
        else:
            print_table(columns, [to_row(each) for each in rows])

    def confirm(self, question: str) -> bool:
        """Ask at the terminal; raise a usage error if there is none."""
        if self.json or not sys.stdin.isatty():
            raise usage_error("Add --yes: there is no terminal to ask for confirmation.")
        return click.confirm(clean(question), err=True)


def server_address(settings: Settings) -> str:
    """Return the address of a server with these settings on this machine."""
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    if settings.host in ("0.0.0.0", "::"):  # noqa: S104 - compared with, not bound to
        host = "127.0.0.1"
    return f"{'https' if settings.ssl_certfile else 'http'}://{host}:{settings.port}"


def to_results(items: Iterable[Serializable]) -> dict[str, Any]:
    """Return the JSON document for a list."""
    return {"results": [each.to_dict() for each in items]}


def usage_error(message: str) -> click.UsageError:
    """Return a usage error of the running command."""
    return click.UsageError(message, click.get_current_context())


pass_cli = click.make_pass_decorator(CliContext, ensure=True)


class _StderrHandler(logging.Handler):
    """Print log records on standard error."""

    def emit(self, record: logging.LogRecord) -> None:
        print_line(f"{record.levelname.lower()}: {record.getMessage()}", err=True)


class SectionOption(click.Option):
    """An option that is listed in its own section of the help."""

    def __init__(self, *names: Any, section: str, **attributes: Any) -> None:
        super().__init__(*names, **attributes)
        self.section = section


class SharedOption(SectionOption):
    """An option that is stored in the `CliContext` instead of being passed to the command."""

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


_SCOPE_OPTIONS: Mapping[str, tuple[tuple[str, ...], str]] = {
    "user": (("--user", "-u"), f"The user. [default: {DEFAULT_USER}]"),
    "everyone": (("--user", "-u"), "Only this user. [default: all users]"),
    "project": (("--project",), "One of the user's projects."),
    "session": (("--session",), "One session, such as a chat."),
}
_GLOBAL_OPTIONS: tuple[tuple[tuple[str, ...], dict[str, Any]], ...] = (
    (("--home",), {"metavar": "FOLDER", "help": "The folder of the ledger. [default: ~/.recollect]"}),
    (("--database",), {"metavar": "ADDRESS", "help": "A ledger file or a postgresql:// address."}),
    (("--config",), {"metavar": "FILE", "help": "A settings file, TOML or YAML."}),
    (("--preset",), {"metavar": "NAME", "shell_complete": _complete_preset, "help": "Named defaults."}),
    (("--json",), {"is_flag": True, "help": "Print JSON, for programs."}),
    (("--verbose", "-v"), {"is_flag": True, "help": "Print debug messages, and the traceback of an error."}),
)


def shared_options(scope: str) -> list[click.Option]:
    """Return the shared options; `scope` names the scope options to include, such as "user project"."""
    scoped = [(_SCOPE_OPTIONS[name][0], {"metavar": "ID", "help": _SCOPE_OPTIONS[name][1]}) for name in scope.split()]
    return [
        *(SharedOption(*names, section="Scope", **attributes) for names, attributes in scoped),
        *(SharedOption(*names, section="Everywhere", **attributes) for names, attributes in _GLOBAL_OPTIONS),
    ]


class Command(click.Command):
    """A command with the shared options and examples in its help."""

    def __init__(self, *args: Any, scope: str = "user", examples: Sequence[str] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params += shared_options(scope)
        self.examples = tuple(examples)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the command's own options, then the shared ones."""
        write_options(self, ctx, formatter)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples."""
        with formatter.section("Examples"):
            for example in self.examples:
                formatter.write(f"  $ {example}\n")


def command(
    *examples: str,
    scope: str = "user",
    group: click.Group | None = None,
    name: str | None = None,
    cls: type[Command] = Command,
    help: str | None = None,
) -> Callable[[Callable[..., Any]], Command]:
    """Return a decorator that makes a function of a `CliContext` a command, of a group if one is named."""

    def decorate(function: Callable[..., Any]) -> Command:
        made = click.command(name, cls=cls, scope=scope, examples=examples, help=help)(pass_cli(function))
        if group is not None:
            group.add_command(made)
        return made

    return decorate


def write_options(command: click.Command, ctx: click.Context, formatter: click.HelpFormatter) -> None:
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


class ExitCode(IntEnum):
    """Exit codes of `recollect`."""

    OK = 0
    UNEXPECTED = 1
    INVALID = 2
    NOT_FOUND = 3
    CONFLICT = 4
    UNAVAILABLE = 5
    DAMAGED = 6
    MISSING = 7
    INTERRUPTED = 130
    BROKEN_PIPE = 141


EXIT_CODES: Mapping[type[BaseException], ExitCode] = {
    errors.InvalidInput: ExitCode.INVALID,
    errors.Unauthenticated: ExitCode.INVALID,
    errors.NotAllowed: ExitCode.INVALID,
    errors.NotFound: ExitCode.NOT_FOUND,
    errors.Conflict: ExitCode.CONFLICT,
    errors.QuotaReached: ExitCode.CONFLICT,
    errors.Unavailable: ExitCode.UNAVAILABLE,
    errors.ToolFailed: ExitCode.UNEXPECTED,
    errors.StoreCorrupt: ExitCode.DAMAGED,
    errors.StoreTooNew: ExitCode.DAMAGED,
    errors.Unsupported: ExitCode.MISSING,
    errors.MissingExtra: ExitCode.MISSING,
    errors.RecollectError: ExitCode.UNEXPECTED,
    click.ClickException: ExitCode.INVALID,
    click.Abort: ExitCode.INTERRUPTED,
    KeyboardInterrupt: ExitCode.INTERRUPTED,
    BrokenPipeError: ExitCode.BROKEN_PIPE,
    OSError: ExitCode.UNAVAILABLE,
}


def exit_code_for(kind: type[BaseException]) -> ExitCode:
    """Return the exit code of an error class, or of its nearest base class."""
    return next((EXIT_CODES[each] for each in kind.__mro__ if each in EXIT_CODES), ExitCode.UNEXPECTED)


def error_name(error: BaseException) -> str:
    """Return the name of an error in JSON, such as not_found."""
    if isinstance(error, click.ClickException):
        return "usage"
    if isinstance(error, errors.RecollectError):
        return re.sub(r"(?<!^)(?=[A-Z])", "_", type(error).__name__).lower()
    return "unavailable" if isinstance(error, OSError) else "unexpected"
