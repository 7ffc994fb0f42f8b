"""recollect ui"""

from __future__ import annotations

import sys
import threading
import webbrowser
from typing import Any

import click

from recollect.cli.commands.serve import server_options
from recollect.cli.context import CliContext, command
from recollect.cli.output import bold, dim, print_json, print_line


@command("recollect ui --no-open", "recollect ui --port 9000", scope="")
@click.option("--url", metavar="ADDRESS", help="A running server. [default: that of the settings, or a new one]")
@click.option("--no-open", is_flag=True, help="Only print the address.")
@server_options
def ui(cli: CliContext, /, url: str | None, no_open: bool, **values: Any) -> None:
    """Open the web page in the browser.

    A running server is used; otherwise one is started, which Ctrl-C stops.
    """
    from recollect.cli.chat import ChatClient
    from recollect.config.settings import Settings
    from recollect.http.server import bind_sockets, check_settings, serve

    overrides = {name: values[name] for name in Settings.model_fields if values.get(name) is not None}
    settings = cli.load(overrides).settings
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    scheme = "https" if settings.ssl_certfile else "http"
    address = url or f"{scheme}://{host}:{settings.port}"
    client = ChatClient(address, user=cli.user_id, project=cli.project, certificate=settings.ssl_certfile)
    try:
        is_running = url is not None or (settings.port != 0 and client.is_reachable())
    finally:
        client.close()
    if is_running:
        _show(cli, address, no_open=no_open, hint="it is running")
        return
    check_settings(settings)
    with bind_sockets(settings.host, settings.port) as listening:
        # The sockets are bound, so that a browser that is faster than the server waits.
        _show(cli, listening.url(tls=bool(settings.ssl_certfile)), no_open=no_open, hint="Ctrl-C stops it")
        serve(settings, listening)


def _show(cli: CliContext, address: str, *, no_open: bool, hint: str) -> None:
    page = f"{address.rstrip('/')}/"
    if cli.json:
        print_json({"page": page})
    else:
        print_line("The page is at ", bold(page), dim(f"  {hint}"))
    sys.stdout.flush()
    if not no_open:
        # Some browsers of a terminal return only when they are closed.
        threading.Thread(target=webbrowser.open, args=(page,), daemon=True).start()
