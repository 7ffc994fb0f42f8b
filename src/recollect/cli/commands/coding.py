"""recollect install, uninstall and hook."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import click

from recollect.cli.context import CliContext, command, usage_error
from recollect.cli.options import YES_OPTION
from recollect.cli.output import Column, StyledText, bold, dim, print_line, print_table
from recollect.coding.clients import AGENTS_LINES, CLIENTS, KEY_VARIABLE, HookStyle, InstallTarget, plugin_folder
from recollect.coding.events import CLIENTS as HOOK_CLIENTS
from recollect.coding.install import InstallPlan, apply_plan, get_client, is_installed, plan_install, plan_uninstall
from recollect.project import find_project

_PROGRAM = "recollect"
_DIFF_COLOURS = {"+": "green", "-": "red", "@": "cyan"}
_SCOPE_OPTION = click.option(
    "--project/--user",
    "in_project",
    default=False,
    help="In this folder, or for all your projects. [default: --user]",
)
_DRY_RUN_OPTION = click.option("--dry-run", is_flag=True, help="Only show what would change.")


@command("recollect install --list", "recollect install claude-code --dry-run", scope="")
@click.argument("client", metavar="[CLIENT]", required=False)
@click.option("--list", "lists", is_flag=True, help="List the clients, and which of them use memory.")
@_SCOPE_OPTION
@click.option("--url", metavar="ADDRESS", default="", help="The server. [default: RECOLLECT_URL, or this machine]")
@click.option(
    "--hooks",
    type=click.Choice(["auto", "http", "command", "off"]),
    default="auto",
    show_default=True,
    help="By HTTP, where the client can and the server is on this machine, or as a command.",
)
@click.option("--write-key", is_flag=True, help=f"Write {KEY_VARIABLE} in clear, for clients that need it.")
@_DRY_RUN_OPTION
@YES_OPTION
def install(
    cli: CliContext,
    client: str | None,
    lists: bool,
    in_project: bool,
    url: str,
    hooks: HookStyle,
    write_key: bool,
    dry_run: bool,
    yes: bool,
) -> None:
    """Add memory to a coding agent or another client of MCP.

    CLIENT is claude-code, codex, cursor, gemini, vscode, claude-desktop or antigravity. Its configuration gets the
    MCP server and, where the client has hooks, memory that works by itself; entries of others stay as they are. The
    difference is shown first, and each changed file is backed up. docs/coding has a page for each client.
    """
    if lists or client is None:
        if client is not None or not lists:
            raise usage_error(f"Name one client, such as {next(iter(CLIENTS))}, or --list them.")
        _list_clients(cli)
        return
    key = cli.environ.get(KEY_VARIABLE, "") if write_key else ""
    if write_key and not key:
        raise usage_error(f"--write-key needs the key in {KEY_VARIABLE}.")
    target = _make_target(cli, in_project=in_project, url=url, hooks=hooks, key=key)
    plan = plan_install(get_client(client), target)
    if _carry_out(cli, plan, "install", dry_run=dry_run, yes=yes) and not cli.json:
        print_line("For AGENTS.md or CLAUDE.md, if you like (nothing was written there):")
        for line in AGENTS_LINES:
            print_line(f"  {line}")
        if client == "claude-code":
            print_line(dim(f"The same as a plugin: claude --plugin-dir {plugin_folder()}"))


@command("recollect uninstall claude-code --dry-run", scope="")
@click.argument("client")
@_SCOPE_OPTION
@_DRY_RUN_OPTION
@YES_OPTION
def uninstall(cli: CliContext, client: str, in_project: bool, dry_run: bool, yes: bool) -> None:
    """Remove memory from a client.

    What `recollect install` added is removed, and nothing else. Each changed file is backed up.
    """
    plan = plan_uninstall(get_client(client), _make_target(cli, in_project=in_project))
    _carry_out(cli, plan, "uninstall", dry_run=dry_run, yes=yes)


@command("recollect hook recall --client codex", scope="")
@click.argument("event", metavar="EVENT")
@click.option("--client", required=True, metavar="NAME", help=f"The coding agent: {', '.join(HOOK_CLIENTS)}.")
@click.option("--url", metavar="ADDRESS", default="", help="The server. [default: RECOLLECT_URL, or this machine]")
def hook(cli: CliContext, event: str, client: str, url: str) -> None:
    """Answer a hook; coding agents run it.

    EVENT is recall, brief, keep or save. The client's event is read from standard input, and what the client expects
    is printed. It takes at most 300 ms and always succeeds: without a server the agent works as before. The key is in
    RECOLLECT_API_KEY, RECOLLECT_HOOK_TIMEOUT_S changes the time.
    """
    from recollect.coding.hook import run

    answer, reason = run([event, "--client", client, *(["--url", url] if url else [])], cli.environ)
    click.echo(answer)
    if reason:
        click.echo(reason, err=True)


def _make_target(
    cli: CliContext, *, in_project: bool, url: str = "", hooks: HookStyle = "auto", key: str = ""
) -> InstallTarget:
    folder = Path.cwd()
    return InstallTarget(
        home=Path.home(),
        folder=folder,
        in_project=in_project,
        # A file of a project is for everyone who works on it.
        program=_PROGRAM if in_project else _find_program(),
        url=url,
        hooks=hooks,
        project_id=find_project(folder, cli.environ).id if in_project else "",
        key=key,
        environ=cli.environ,
    )


def _find_program() -> str:
    """Return the path of `recollect`: clients are started without the environment of a shell."""
    beside = Path(sys.executable).with_name(_PROGRAM + (".exe" if sys.platform == "win32" else ""))
    return str(beside) if beside.exists() else shutil.which(_PROGRAM) or _PROGRAM


def _list_clients(cli: CliContext) -> None:
    targets = [_make_target(cli, in_project=in_project) for in_project in (False, True)]
    rows = []
    for client in CLIENTS.values():
        home = targets[0].home
        is_used = any((home / trace).exists() for trace in client.traces)
        installed = [
            name
            for name, target in zip(("user", "project"), targets, strict=True)
            if (client.has_project_scope or not target.in_project) and is_installed(client, target)
        ]
        rows.append((client.name, client.title, is_used, installed))
    names = ("client", "title", "in_use", "installed")
    if cli.replied({"results": [dict(zip(names, row, strict=True)) for row in rows]}):
        return
    columns = [Column("client"), Column("name"), Column("in use"), Column("memory installed for")]
    shown = [(name, title, "yes" if used else "no", ", ".join(places) or "-") for name, title, used, places in rows]
    print_table(columns, shown)


def _carry_out(cli: CliContext, plan: InstallPlan, verb: str, *, dry_run: bool, yes: bool) -> bool:
    """Show the changes, ask and write them; return whether they were written."""
    if not cli.json:
        for change in plan.changes:
            _print_diff(change.diff)
        for note in plan.notes if plan.changes or verb == "uninstall" else ():
            print_line(dim(note))
    is_written = bool(plan.changes) and not dry_run
    if is_written and not yes and not cli.confirm(f"Change {len(plan.changes)} files?"):
        print_line("Nothing was changed.", err=True)
        return False
    if is_written:
        apply_plan(plan)
    files = [str(change.path) for change in plan.changes]
    document = {"client": plan.client.name, "files": files, "written": is_written, "notes": list(plan.notes)}
    summary = f"{'Changed' if is_written else 'Would change'} {len(files)} files of {plan.client.title}."
    state = "already" if verb == "install" else "not"
    nothing = f"Nothing to {verb}: Recollect is {state} in the configuration of {plan.client.title}."
    cli.reply(document, bold(summary) if files else nothing)
    return is_written


def _print_diff(diff: str) -> None:
    for line in diff.splitlines():
        colour = _DIFF_COLOURS.get(line[:1])
        print_line(StyledText(line, colour) if colour else line)
    print_line()
