"""recollect mcp"""

from __future__ import annotations

import sys
from pathlib import Path

import click

from recollect.cli.context import CliContext, command, server_address
from recollect.mcp.relay import Relay, ServerAddress
from recollect.project import find_project


@command("recollect mcp", "recollect mcp --url https://memory.example.org", scope="user project")
@click.option("--url", metavar="ADDRESS", help="A running server. [default: RECOLLECT_URL, or that of the settings]")
@click.option(
    "--folder",
    type=click.Path(path_type=Path),
    default=Path(),
    metavar="PATH",
    help="The working folder, for clients that start servers elsewhere. [default: the current one]",
)
def mcp(cli: CliContext, /, url: str | None, folder: Path) -> None:
    """Serve MCP on standard input and output.

    For clients that start a program. A running server is used, with the key in RECOLLECT_API_KEY; otherwise the
    ledger is opened in this process. The project is that of the working folder: RECOLLECT_PROJECT, the git remote,
    the repository's or this folder.
    """
    environ = cli.environ
    # A client may pass a variable that it does not resolve because no folder is open.
    project = find_project(folder if folder.is_dir() else Path.cwd(), environ)
    project_id = project.id if cli.project is None else cli.project
    named = url or environ.get("RECOLLECT_URL")
    address = ServerAddress(named or server_address(cli.settings()))
    if not named and not address.answers():
        _serve_here(cli, project_id, project.branch)
        return
    key = environ.get("RECOLLECT_API_KEY", "").strip()
    headers = {
        "X-Memory-User": cli.user or "",
        "X-Memory-Project": project_id,
        "X-Memory-Branch": project.branch,
        "Authorization": f"Bearer {key}" if key else "",
    }
    Relay(address, headers, sys.stdout.buffer).run(sys.stdin.buffer)


def _serve_here(cli: CliContext, project: str, branch: str) -> None:
    import asyncio

    from recollect.mcp.access import McpClient
    from recollect.mcp.stdio import serve_stdio
    from recollect.model.scope import Scope

    settings = cli.settings()
    client = McpClient(scope=Scope(cli.user or settings.chat_user, project), branch=branch)
    asyncio.run(serve_stdio(settings, client))
