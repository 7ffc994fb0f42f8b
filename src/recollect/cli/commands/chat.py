"""recollect chat"""

from __future__ import annotations

import sys
from contextlib import ExitStack

import click

from recollect.cli.command import Command
from recollect.cli.given import Given, pass_given


@click.command(
    cls=Command,
    whose="user project",
    examples=("recollect chat --user alex", "recollect chat --url http://127.0.0.1:8100 --model gpt-5"),
)
@click.option("--url", metavar="ADDRESS", help="The server. [default: that of the settings; if none runs, its own]")
@click.option("--model", default="", metavar="NAME", help="The model. [default: the first that the server has]")
@pass_given
def chat(given: Given, url: str | None, model: str) -> None:
    """Chat with a model that remembers.

    What is typed goes to a running server, or to one that lives as long as the chat. Lines that begin with a slash
    are commands, /help lists them. Without a terminal, every line that is piped in is said.
    """
    from recollect.cli.chatting.memories import Memories
    from recollect.cli.chatting.room import Room, greet
    from recollect.cli.chatting.talk import Talk
    from recollect.http.auth.address import is_loopback

    if given.json:
        raise click.UsageError("A chat is words; leave --json out.", click.get_current_context())
    settings = given.load().settings
    # Who pipes nothing in needs no server.
    first = "" if sys.stdin.isatty() else sys.stdin.readline()
    if not first and not sys.stdin.isatty():
        return
    with ExitStack() as stack:
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        scheme = "https" if settings.ssl_certfile else "http"
        talk = Talk(
            url or f"{scheme}://{host}:{settings.port}",
            user=given.user_id,
            project=given.project,
            model=model,
            certificate="" if url else settings.ssl_certfile,
        )
        stack.enter_context(talk)
        started = url is None and not talk.is_there()
        if started:
            from recollect.http.beside import server_beside

            talk.url = stack.enter_context(server_beside(settings))
        elsewhere = "" if started or is_loopback(talk.host) else talk.host
        memories = Memories(given, user=given.user_id, project=given.project, elsewhere=elsewhere)
        stack.callback(memories.close)
        if sys.stdin.isatty():
            greet(talk, started=started)
        Room(talk, memories).run(first)
