"""The entry point: list the commands, import the called one, and turn every error into a message and an exit code."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, NamedTuple

import click

from recollect import __version__
from recollect.cli.context import CliContext, ExitCode, error_name, exit_code_for, shared_options, write_options
from recollect.cli.output import StyledText, bold, dim, enable_colours, json_text, print_json, print_line
from recollect.errors import RecollectError
from recollect.observability.tracing import format_traceback


class CommandEntry(NamedTuple):
    """A command: `module:attribute` inside recollect.cli.commands, and its purpose."""

    target: str
    summary: str


SECTIONS: Mapping[str, Mapping[str, CommandEntry]] = {
    "Store": {
        "add": CommandEntry("store:add", "Store a memory verbatim."),
        "remember": CommandEntry("store:remember", "Store a turn of a session, and learn from it."),
        "update": CommandEntry("store:update", "Change the text or the fields of a memory."),
        "forget": CommandEntry("store:forget", "Remove a memory, or all of them, from recall."),
        "restore": CommandEntry("store:restore", "Make a forgotten or superseded memory active again."),
        "undo": CommandEntry("store:undo", "Undo the last change, or a change by its number."),
        "erase": CommandEntry("store:erase", "Delete permanently, with everything derived from it."),
    },
    "Find": {
        "search": CommandEntry("query:search", "Find the memories that match a question, best first."),
        "recall": CommandEntry("query:recall", "Recall memories as a chat does, and print the block for the prompt."),
        "list": CommandEntry("query:list_", "List memories, newest first."),
        "show": CommandEntry("query:show", "Show all fields of a memory."),
        "graph": CommandEntry("query:graph", "Show what is related to a name, a key or a memory."),
        "history": CommandEntry("query:history", "List changes: who, when, why and the previous values."),
    },
    "Move": {
        "backup": CommandEntry("transfer:backup", "Make, verify and restore backups of everything."),
        "export": CommandEntry("transfer:export", "Write memories and turns as JSON Lines."),
        "import": CommandEntry("transfer:import_", "Import memories from an export or from another product."),
        "mirror": CommandEntry("storage:mirror", "Inspect and sync the memories that are Markdown files."),
    },
    "Coding agents": {
        "install": CommandEntry("coding:install", "Add memory to a coding agent or another client of MCP."),
        "uninstall": CommandEntry("coding:uninstall", "Remove memory from a client."),
        "hook": CommandEntry("coding:hook", "Answer a hook; coding agents run it."),
    },
    "Evaluate": {"eval": CommandEntry("eval:eval_", "Measure retrieval quality on your data.")},
    "Operate": {
        "stats": CommandEntry("admin:stats", "Count stored records, and tokens of the LLM."),
        "review": CommandEntry("maintenance:review", "List memories that wait for review, and decide."),
        "upkeep": CommandEntry("maintenance:upkeep", "Run maintenance on a user's memories now."),
        "sessions": CommandEntry("maintenance:sessions", "List sessions, or end one."),
        "end-run": CommandEntry("maintenance:end_run", "Record the result of an agent's run."),
        "jobs": CommandEntry("maintenance:jobs", "List background jobs, and replay or cancel them."),
        "worker": CommandEntry("maintenance:worker", "Run background jobs in this process."),
        "users": CommandEntry("admin:users", "List the users that have memories."),
        "keys": CommandEntry("admin:keys", "Create, list and revoke API keys of the server."),
        "reembed": CommandEntry("storage:reembed", "Switch to the embedding model of the settings now."),
        "partition": CommandEntry("storage:partition", "Partition the large tables of PostgreSQL by user."),
        "index": CommandEntry("storage:index", "Compare the vector database with the ledger, or rebuild it."),
        "doctor": CommandEntry("doctor:doctor", "Check the installation, and print a remedy for each problem."),
        "config": CommandEntry("config:config", "Show the settings in force and their sources."),
        "serve": CommandEntry("serve:serve", "Run the server."),
        "mcp": CommandEntry("mcp:mcp", "Serve MCP on standard input and output."),
        "ui": CommandEntry("serve:ui", "Open the web page in the browser."),
        "chat": CommandEntry("chat:chat", "Chat with a model that has memory."),
        "agent": CommandEntry("chat:agent", "Ask an agent that reasons and uses tools."),
        "completion": CommandEntry("config:completion", "Print the completion script for a shell."),
    },
}

COMMANDS: Mapping[str, CommandEntry] = {name: entry for each in SECTIONS.values() for name, entry in each.items()}


_FIRST_COMMANDS = (
    ('recollect add "The Hawaii trip may cost 10,000 dollars"', "store a memory"),
    ('recollect search "How much can I spend?"', "find it"),
    ("recollect doctor", "check the installation"),
)


class RootGroup(click.Group):
    """The group of all commands."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return all commands, in the order of the overview."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        module, _, attribute = entry.target.partition(":")
        command: click.Command = getattr(import_module(f"recollect.cli.commands.{module}"), attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the called command; the error for an unknown one names the most similar."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            from difflib import get_close_matches

            matches = get_close_matches(args[0], COMMANDS, n=1)
            hint = f"did you mean {matches[0]}?" if matches else "recollect --help lists them."
            raise click.UsageError(f"There is no command {args[0]!r}; {hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands by section, then the options."""
        for section, commands in SECTIONS.items():
            with formatter.section(section):
                formatter.write_dl([(name.ljust(10), entry.summary) for name, entry in commands.items()])
        write_options(self, ctx, formatter)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[Any]:
        """Complete commands and options without importing any command."""
        from click.shell_completion import CompletionItem

        names = [CompletionItem(name, help=entry.summary) for name, entry in COMMANDS.items()]
        return [each for each in names if each.value.startswith(incomplete)] + click.Command.shell_complete(
            self, ctx, incomplete
        )

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command and flush its output."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
            return result
        except BrokenPipeError as error:
            # The reader is gone: the rest of the buffer must not raise at exit.
            sys.stdout = open(os.devnull, "w")  # noqa: SIM115
            raise click.exceptions.Exit(exit_code_for(type(error))) from None

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        """Run, and exit with a code of `ExitCode`; an error is printed without a traceback."""
        args = list(sys.argv[1:] if args is None else args)
        cli = CliContext(environ=os.environ)
        enable_colours(not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb")
        try:
            code = super().main(args, "recollect", "_RECOLLECT_COMPLETE", standalone_mode=False, obj=cli, **extra)
        except Exception as error:
            if cli.verbose:
                print(format_traceback(error), file=sys.stderr)
            print_error(error, as_json=cli.json or "--json" in args)
            code = exit_code_for(type(error))
        sys.exit(code if isinstance(code, int) else ExitCode.OK)


def print_error(error: Exception, *, as_json: bool) -> None:
    message, hint = _describe_error(error)
    if as_json:
        payload = {"code": error_name(error), "message": message, "exit_code": int(exit_code_for(type(error)))}
        sys.stderr.write(json_text({"error": payload}, ascii_only=True) + "\n")
        return
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        sys.stderr.write(error.format_message().rstrip() + "\n")
        return
    print_line(("Error: " if not isinstance(error, click.Abort) else "") + message, err=True)
    if hint:
        print_line(dim(hint), err=True)


def _describe_error(error: Exception) -> tuple[str, str]:
    """Return the message, and a hint."""
    if isinstance(error, click.Abort):
        return "stopped", ""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        names = error.ctx.command.list_commands(error.ctx) if isinstance(error.ctx.command, click.Group) else []
        return f"{error.ctx.command_path} needs a command: {', '.join(names)}", ""
    if isinstance(error, click.UsageError) and error.ctx is not None:
        return error.format_message(), f"{error.ctx.command_path} --help shows its usage."
    if isinstance(error, click.ClickException):
        return error.format_message(), ""
    if isinstance(error, RecollectError):
        return str(error), ""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror, ""
    return f"unexpected {type(error).__name__}: {error}", "-v prints the traceback, for a bug report."


def _print_version(context: click.Context, option: click.Parameter, value: bool) -> None:
    if value and not context.resilient_parsing:
        print_line(f"recollect {__version__}")
        context.exit()


@click.group(cls=RootGroup, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version", is_flag=True, expose_value=False, is_eager=True, callback=_print_version, help="Print the version."
)
@click.pass_context
def root(context: click.Context) -> None:
    """Long-term memory for LLM applications and agents."""
    if context.invoked_subcommand is not None:
        return
    if context.ensure_object(CliContext).json:
        commands = {name: entry.summary for name, entry in COMMANDS.items()}
        print_json({"version": __version__, "commands": commands})
        return
    print_line(bold("Recollect"), f" {__version__}: long-term memory for LLM applications and agents.")
    print_line()
    print_line("Three commands to try first:")
    for command, purpose in _FIRST_COMMANDS:
        print_line("  ", StyledText(command, "cyan"), " " * (58 - len(command)), dim(purpose))
    print_line()
    print_line(dim("recollect --help lists all commands; recollect COMMAND --help explains one."))


root.params += shared_options("user project session")


def main() -> None:
    """Run the command line."""
    # The matrices are small: starting BLAS threads costs more than they save.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # Imports make many objects that stay: looking for garbage among them takes a tenth of a short command.
    gc.set_threshold(5_000)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    try:
        root.main()
    finally:
        # Nor is garbage looked for while the process ends, which takes as long again.
        gc.freeze()


if __name__ == "__main__":
    main()
