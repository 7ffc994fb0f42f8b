"""recollect mcp"""

from __future__ import annotations

import sys
from pathlib import Path

import click

from recollect.cli.context import CliContext, command
from recollect.mcp.relay import Relay, ServerAddress
from recollect.project import find_project


@command("recollect mcp", "recollect mcp --url https://memory.example.org", scope="user project")
@click.option("--url", metavar="ADDRESS", help="A running server. [default: RECOLLECT_URL, or that of the settings]")
def mcp(cli: CliContext, /, url: str | None) -> None:
    """Serve MCP on standard input and output.

    For clients that start a program. A running server is used, with the key in RECOLLECT_API_KEY; otherwise the
    ledger is opened in this process. The project is that of the working folder: RECOLLECT_PROJECT, the git remote,
    the repository's or this folder.
    """
    environ = cli.environ
    project = find_project(Path.cwd(), environ)
    project_id = project.id if cli.project is None else cli.project
    named = url or environ.get("RECOLLECT_URL")
    address = ServerAddress(named) if named else _find_local_server(cli)
    if address is None:
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


def _find_local_server(cli: CliContext) -> ServerAddress | None:
    settings = cli.settings()
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    if not settings.port or settings.host in ("0.0.0.0", "::", "[::]"):  # noqa: S104 - compared with, not bound to
        host = "127.0.0.1"
    address = ServerAddress(f"http{'s' if settings.ssl_certfile else ''}://{host}:{settings.port or 8100}")
    return address if address.answers() else None


def _serve_here(cli: CliContext, project: str, branch: str) -> None:
    import asyncio

    from recollect.mcp.access import McpClient
    from recollect.mcp.stdio import serve_stdio
    from recollect.model.scope import Scope

    settings = cli.settings()
    client = McpClient(scope=Scope(cli.user or settings.chat_user, project), branch=branch)
    asyncio.run(serve_stdio(settings, client))
