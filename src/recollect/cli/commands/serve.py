"""recollect serve"""

from __future__ import annotations

import sys
from typing import Any

import click

from recollect.cli.command import Command
from recollect.cli.given import CliContext, pass_cli
from recollect.cli.numbers import WholeNumber
from recollect.cli.proxy_options import proxy_options, proxy_settings
from recollect.cli.terminal import bold, dim, print_json, print_line


@click.command(
    cls=Command,
    whose="",
    examples=(
        "recollect serve",
        "recollect serve --upstream https://api.openai.com/v1",
        "recollect serve --llm gpt-5-mini --llm-url https://api.openai.com/v1",
        "recollect serve --port 9000 --workers 4",
        "recollect serve --preset markdown-proxy --openai-base-url http://localhost:11434/v1",
        "recollect serve --ssl-certfile cert.pem --ssl-keyfile key.pem",
    ),
)
@click.option("--host", metavar="ADDRESS", help="Address to listen on. [default: 127.0.0.1]")
@click.option("--port", type=WholeNumber(0, 65_535), metavar="N", help="Port; 0 for any. [default: 8100]")
@click.option("--upstream", metavar="URL", help="The OpenAI-compatible endpoint that chats are sent to.")
@click.option("--llm", metavar="MODEL", help="Model that learns from chats; without it, the chat's own if it may.")
@click.option("--llm-url", metavar="URL", help="Its OpenAI-compatible endpoint. [default: OpenAI's]")
@click.option("--workers", type=WholeNumber(1, 256), metavar="N", help="Processes that serve. [default: 1]")
@click.option("--ssl-certfile", metavar="FILE", help="Certificate chain in PEM: serve https.")
@click.option("--ssl-keyfile", metavar="FILE", help="Its private key in PEM, if that is in a file of its own.")
@click.option(
    "--ssl-keyfile-password", metavar="TEXT", help="Password of the key; others on this machine see it if given here."
)
@click.option("--allowed-hosts", metavar="NAMES", help="Names it answers to beside localhost, separated by commas.")
@click.option("--access-log/--no-access-log", default=None, help="Log a line for each request, or none.")
@proxy_options
@pass_cli
def serve(
    cli: CliContext,
    /,
    host: str | None,
    port: int | None,
    upstream: str | None,
    llm: str | None,
    llm_url: str | None,
    workers: int | None,
    ssl_certfile: str | None,
    ssl_keyfile: str | None,
    ssl_keyfile_password: str | None,
    allowed_hosts: str | None,
    access_log: bool | None,
    **proxy_values: Any,
) -> None:
    """Run the server.

    Ctrl-C stops it, after what is under way; a second Ctrl-C at once.
    """
    from recollect.http.listen import bind_sockets
    from recollect.http.serve import check_settings
    from recollect.http.serve import serve as run
    from recollect.http.upstream.learning import describe_start

    options = {
        "host": host,
        "port": port,
        "upstream_url": upstream,
        "llm": llm,
        "llm_url": llm_url,
        "server_processes": workers,
        "ssl_certfile": ssl_certfile,
        "ssl_keyfile": ssl_keyfile,
        "ssl_keyfile_password": ssl_keyfile_password,
        "allowed_hosts": allowed_hosts,
        "access_log": access_log,
        "log_level": "debug" if cli.verbose else None,
    }
    overrides = {name: value for name, value in options.items() if value is not None}
    settings = cli.load(proxy_settings(proxy_values) | overrides).settings
    check_settings(settings)
    with bind_sockets(settings.host, settings.port) as listening:
        address = listening.url(tls=bool(settings.ssl_certfile))
        if cli.json:
            print_json({"address": address, "learning": describe_start(settings)})
        else:
            print_line("Starting on ", bold(address), dim("  Ctrl-C stops it"))
            print_line(dim(describe_start(settings)))
        sys.stdout.flush()
        run(settings, listening)
