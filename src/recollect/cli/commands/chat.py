"""recollect chat"""

from __future__ import annotations

import sys
from contextlib import ExitStack

import click

from recollect.cli.command import Command
from recollect.cli.given import CliContext, pass_cli


@click.command(
    cls=Command,
    whose="user project",
    examples=("recollect chat --user alex", "recollect chat --url http://127.0.0.1:8100 --model gpt-5"),
)
@click.option("--url", metavar="ADDRESS", help="The server. [default: that of the settings; if none runs, its own]")
@click.option("--model", default="", metavar="NAME", help="The model. [default: the first that the server has]")
@pass_cli
def chat(cli: CliContext, url: str | None, model: str) -> None:
    """Chat with a model that remembers.

    What is typed goes to a running server, or to one that lives as long as the chat. Lines that begin with a slash
    are commands, /help lists them. Without a terminal, every line that is piped in is said.
    """
    from recollect.cli.chatting.memories import ChatMemories
    from recollect.cli.chatting.room import ChatRepl, print_greeting
    from recollect.cli.chatting.talk import ChatClient
    from recollect.http.auth.address import is_loopback

    if cli.json:
        raise click.UsageError("A chat is words; leave --json out.", click.get_current_context())
    settings = cli.load().settings
    # Who pipes nothing in needs no server.
    first_line = "" if sys.stdin.isatty() else sys.stdin.readline()
    if not first_line and not sys.stdin.isatty():
        return
    with ExitStack() as stack:
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        scheme = "https" if settings.ssl_certfile else "http"
        client = ChatClient(
            url or f"{scheme}://{host}:{settings.port}",
            user=cli.user_id,
            project=cli.project,
            model=model,
            certificate="" if url else settings.ssl_certfile,
        )
        stack.enter_context(client)
        started = url is None and not client.is_reachable()
        if started:
            from recollect.http.beside import run_embedded_server

            client.url = stack.enter_context(run_embedded_server(settings))
        remote_host = "" if started or is_loopback(client.host) else client.host
        memories = ChatMemories(cli, user=cli.user_id, project=cli.project, remote_host=remote_host)
        stack.callback(memories.close)
        if sys.stdin.isatty():
            print_greeting(client, started=started)
        ChatRepl(client, memories).run(first_line)
