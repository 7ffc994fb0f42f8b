"""recollect chat and agent."""

from __future__ import annotations

import asyncio
import sys
from contextlib import AsyncExitStack, ExitStack
from typing import TYPE_CHECKING, Any

import click

from recollect.cli.context import CliContext, command, server_address, usage_error
from recollect.cli.options import read_text_argument
from recollect.cli.output import StyledText, bold, clean_lines, dim, print_json, print_line

if TYPE_CHECKING:
    from recollect.agent.types import Answer, Event


@command(
    "recollect chat --user alex", "recollect chat --url http://127.0.0.1:8100 --model gpt-5", scope="user project"
)
@click.option("--url", metavar="ADDRESS", help="The server. [default: that of the settings, or a new one]")
@click.option("--model", default="", metavar="NAME", help="The model. [default: the first of the server]")
def chat(cli: CliContext, url: str | None, model: str) -> None:
    """Chat with a model that has memory.

    Messages are sent to a running server, or to one that runs as long as the chat. Lines that begin with a slash are
    commands; /help lists them. Without a terminal, every line of standard input is a message.
    """
    from recollect.cli.chat import ChatClient, ChatRepl
    from recollect.http.auth.address import is_loopback

    if cli.json:
        raise usage_error("A chat has no JSON output; leave --json out.")
    settings = cli.load().settings
    # Without input no server is needed.
    first_line = "" if sys.stdin.isatty() else sys.stdin.readline()
    if not first_line and not sys.stdin.isatty():
        return
    with ExitStack() as stack:
        client = ChatClient(
            url or server_address(settings),
            user=cli.user_id,
            project=cli.project,
            model=model,
            certificate="" if url else settings.ssl_certfile,
        )
        stack.callback(client.close)
        started = url is None and not client.is_reachable()
        if started:
            from recollect.http.server import run_embedded_server

            client.url = stack.enter_context(run_embedded_server(settings))
        remote_host = "" if started or is_loopback(client.host) else client.host
        repl = ChatRepl(cli, client, remote_host=remote_host)
        stack.callback(repl.close)
        if sys.stdin.isatty():
            repl.print_greeting("a server of its own" if started else client.url)
        repl.run(first_line)


_MAX_EVENT_CHARS = 600
_LABELS = {"thought": "cyan", "action": "yellow", "observation": "green", "error": "red"}


@command(
    'recollect agent "Which of my services listens on port 8443?" --memory --user alex',
    'recollect agent "And who looks after it?" --memory --session monday --user alex --model gpt-5',
    scope="user project session",
)
@click.argument("question", nargs=-1)
@click.option("--memory/--no-memory", "enable_memory", default=False, help="Use memory, and learn. [default: off]")
@click.option("--model", default="", metavar="NAME", help="The model. [default: agent_llm or llm of the settings]")
@click.option("--group", multiple=True, metavar="NAME", help="A group of allowed tools; can be repeated.")
@click.option("--state", default="", metavar="TEXT", help="The state of the work.")
@click.option("--quiet", "-q", is_flag=True, help="Print the answer only.")
def agent(cli: CliContext, /, question: tuple[str, ...], model: str, quiet: bool, **options: Any) -> None:
    """Ask an agent that reasons and uses tools.

    Its thoughts, actions and observations are printed as they happen. Its tools are those of the settings
    agent_tools and agent_mcp, and with --memory its own memory.
    """
    prompt = read_text_argument(question, name="question")
    answer = asyncio.run(_run_agent(cli, prompt, model=model, quiet=quiet or cli.json, **options))
    if cli.json:
        from recollect.http.compat.agent import to_agent_response

        print_json(to_agent_response(answer).model_dump(mode="json"))
    elif answer.ended != "answered":
        print_line(dim(f"It ended without an answer: {answer.ended}."), err=True)


async def _run_agent(cli: CliContext, question: str, *, model: str, quiet: bool, **options: Any) -> Answer:
    from recollect.agent.agent import Agent
    from recollect.agent.tool_sources import ToolSources

    async with AsyncExitStack() as opened:
        memory = cli.open_async()
        opened.push_async_callback(memory.close)
        sources = ToolSources(memory.settings)
        opened.push_async_callback(sources.close)
        subject = Agent(memory, model or None, await sources.toolbox())
        opened.push_async_callback(subject.close)
        answer: Answer | None = None
        async for event in subject.stream(question, **cli.scope_args, **options):
            answer = event.answer or answer
            if not cli.json and (not quiet or event.answer is not None):
                _print_event(event)
    assert answer is not None
    return answer


def _print_event(event: Event) -> None:
    """Print an event; long observations are cut."""
    if event.answer is not None:
        for line in clean_lines(event.text):
            print_line(bold(line))
        if event.answer.facts or event.answer.episodes:
            print_line(dim(f"(began with {len(event.answer.facts)} facts and {len(event.answer.episodes)} episodes)"))
        for note in event.answer.notes:
            print_line(dim(note), err=True)
    else:
        style = "red" if event.failed else _LABELS[str(event.kind)]
        text = event.text if len(event.text) <= _MAX_EVENT_CHARS else f"{event.text[:_MAX_EVENT_CHARS]} …"
        first, *rest = clean_lines(text) or [""]
        print_line(StyledText(f"{event.kind.title()}: ".rjust(13), style), first)
        for line in rest:
            print_line(" " * 13, line)
    sys.stdout.flush()
