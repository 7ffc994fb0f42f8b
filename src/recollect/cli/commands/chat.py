"""recollect chat"""

from __future__ import annotations

import asyncio
import sys
from contextlib import AsyncExitStack, ExitStack
from typing import TYPE_CHECKING, Any

import click

from recollect.cli.context import CliContext, Command, pass_cli
from recollect.cli.streams import read_text_argument
from recollect.cli.terminal import StyledText, bold, clean_lines, dim, print_json, print_line

if TYPE_CHECKING:
    from recollect.agent.types import Answer, Event


@click.command(
    cls=Command,
    scope_options="user project",
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
    from recollect.cli.chat.client import ChatClient
    from recollect.cli.chat.repl import ChatMemories, ChatRepl, print_greeting
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
            from recollect.http.server import run_embedded_server

            client.url = stack.enter_context(run_embedded_server(settings))
        remote_host = "" if started or is_loopback(client.host) else client.host
        memories = ChatMemories(cli, user=cli.user_id, project=cli.project, remote_host=remote_host)
        stack.callback(memories.close)
        if sys.stdin.isatty():
            print_greeting(client, started=started)
        ChatRepl(client, memories).run(first_line)


_MAX_EVENT_CHARS = 600
_LABELS = {"thought": "cyan", "action": "yellow", "observation": "green", "error": "red"}


@click.command(
    cls=Command,
    scope_options="user project session",
    examples=(
        'recollect agent "Which of my services listens on port 8443?" --memory --user alex',
        'recollect agent "And who looks after it?" --memory --session monday --user alex --model gpt-5',
    ),
)
@click.argument("question", nargs=-1)
@click.option("--memory/--no-memory", "enabled", default=False, help="Begin with what memory has, and learn. [off]")
@click.option("--model", default="", metavar="NAME", help="The model. [default: agent_llm or llm of the settings]")
@click.option("--group", "groups", multiple=True, metavar="NAME", help="Whose tools may be used; more than one may.")
@click.option("--state", default="", metavar="TEXT", help="Where the work stands.")
@click.option("--quiet", "-q", is_flag=True, help="Show the answer only.")
@pass_cli
def agent(
    cli: CliContext,
    question: tuple[str, ...],
    enabled: bool,
    model: str,
    groups: tuple[str, ...],
    state: str,
    quiet: bool,
) -> None:
    """Put a question to an agent that reasons and uses tools.

    What it thinks, does and observes is shown as it happens. Its tools are those of the settings agent_tools and
    agent_mcp, and with --memory its own memory.
    """
    prompt = read_text_argument(question, name="question")
    options = {"enable_memory": enabled, "group": groups, "state": state}
    answer = asyncio.run(_run_agent(cli, prompt, model=model, quiet=quiet or cli.json, **options))
    if cli.json:
        from recollect.http.compat.agent import to_agent_response

        print_json(to_agent_response(answer).model_dump(mode="json"))
    elif answer.ended != "answered":
        print_line(dim(f"It ended without an answer of its own: {answer.ended}."), err=True)


async def _run_agent(cli: CliContext, question: str, *, model: str, quiet: bool, **options: Any) -> Answer:
    from recollect.agent.agent import Agent
    from recollect.agent.tools.sources import ToolSources

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
    """One event as it happens; of long observations the beginning."""
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
