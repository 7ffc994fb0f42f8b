"""recollect serve"""

from __future__ import annotations

import sys

import click

from recollect.cli.command import Command
from recollect.cli.given import Given, pass_given
from recollect.cli.numbers import WholeNumber
from recollect.cli.terminal import bold, dim, print_json, say
from recollect.errors import Unavailable


@click.command(cls=Command, whose="", examples=("recollect serve", "recollect serve --port 9000"))
@click.option("--host", metavar="ADDRESS", help="Address to listen on. [default: 127.0.0.1]")
@click.option("--port", type=WholeNumber(0, 65_535), metavar="N", help="Port; 0 for any. [default: 8100]")
@pass_given
def serve(given: Given, host: str | None, port: int | None) -> None:
    """Run the server.

    Ctrl-C stops it, after what is under way.
    """
    from recollect.http.serve import serve as run

    loaded = given.load({"host": host, "port": port, "log_level": "debug" if given.verbose else None})
    settings = loaded.settings
    shown = f"[{settings.host}]" if ":" in settings.host else settings.host
    address = f"http://{shown}:{settings.port}" if settings.port else f"http://{shown} (any free port)"
    if given.json:
        print_json({"address": address})
    else:
        say("Starting on ", bold(address), dim("  Ctrl-C stops it"))
    sys.stdout.flush()
    try:
        run(loaded)
    except SystemExit as stopped:
        # The server has said on stderr why it could not start; its own codes mean other things to us.
        if stopped.code:
            raise Unavailable(f"the server could not start on {address}; is the port taken?") from None
